"""Products of bfloat16 matrices, at speed on processors that do not multiply bfloat16.

Without AVX-512 or AMX PyTorch multiplies bfloat16 number by number. There the rounded numbers are
multiplied as float32 and the result is rounded: the same but for the order of the sums, in a
twentieth of the time (`python -m benchmarks --only training`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


@functools.cache
def native() -> bool:
    """Whether the processor multiplies bfloat16."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def widened(product: Callable[..., Any]) -> Callable[..., Any]:
    """The product of bfloat16 matrices by way of float32."""

    def wide(*tensors: torch.Tensor, **factors: float) -> Any:
        with torch.autocast("cpu", enabled=False):
            return product(*(tensor.float() for tensor in tensors), **factors).bfloat16()

    return wide


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (..., n, k) times b (..., k, m), both bfloat16."""
    made: torch.Tensor = torch.matmul(a, b) if native() else widened(torch.matmul)(a, b)
    return made


def baddbmm(
    x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float, alpha: float = 1
) -> torch.Tensor:
    """beta x + alpha a b of stacks of bfloat16 matrices, (n, rows, columns) of x."""
    product = torch.baddbmm if native() else widened(torch.baddbmm)
    made: torch.Tensor = product(x, a, b, beta=beta, alpha=alpha)
    return made


def inductor(graph: Any, inputs: Any) -> Any:
    """PyTorch's own compiler of whole networks, its products by way of float32 where they are."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, decompositions=decompositions())


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What the compiler makes of operations: its own, and products by way of float32."""
    from torch._inductor.decomposition import select_decomp_table

    table = dict(select_decomp_table())
    if not native():
        for product in (aten.mm.default, aten.addmm.default, aten.bmm.default):
            table[product] = _where_narrow(product, table.get(product))
    return table


def _where_narrow(product: Callable[..., Any], own: Callable[..., Any] | None) -> Any:
    """The widened product of bfloat16 matrices; of others what the compiler's own rule makes."""
    wide = widened(product)

    def rule(*tensors: torch.Tensor, **factors: float) -> Any:
        if all(tensor.dtype == torch.bfloat16 for tensor in tensors):
            return wide(*tensors, **factors)
        return NotImplemented if own is None else own(*tensors, **factors)

    return rule
