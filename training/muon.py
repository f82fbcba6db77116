"""PyTorch's Muon with the matrices of one shape made orthogonal at once.

One product of a stack takes a half to a seventh of the time of its small products on a CPU core.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch

from training.products import baddbmm, matmul


class Muon(torch.optim.Muon):
    """The steps of `torch.optim.Muon` with Nesterov momentum and rates that match AdamW's."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step; a closure is not evaluated."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append((parameter, parameter.grad))
            for shape, pairs in shapes.items():
                parameters, gradients = map(list, zip(*pairs, strict=True))
                old = [self._momentum(parameter) for parameter in parameters]
                torch._foreach_lerp_(old, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, old, group["momentum"])
                new = orthogonal(
                    torch.stack(ahead), group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                rate = group["lr"] * 0.2 * math.sqrt(max(shape))
                torch._foreach_add_(parameters, list(new.float().unbind()), alpha=-rate)

    def _momentum(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        kept: torch.Tensor = state["momentum_buffer"]
        return kept


def orthogonal(
    stack: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """The Newton-Schulz iteration of Muon on matrices (n_matrices, n_rows, n_columns), in bfloat16.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks".
    """
    a, b, c = coefficients
    tall = stack.shape[1] > stack.shape[2]
    x = stack.bfloat16()
    x = x.mT.contiguous() if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = matmul(x, x.mT)
        update = baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = baddbmm(x, update, x, beta=a)
    return x.mT if tall else x
