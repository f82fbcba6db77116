"""A selective scan with a backward pass of its own, and Mamba's mixer around it.

transformers' plain path keeps every state in autograd and indexes into arrays of the whole
sequence, so that its backward pass is quadratic in the length. Here the backward pass is written
out, in `scan.c` where a C compiler is at hand and in PyTorch where there is none. The outputs and
gradients are those of transformers' mixer (tests/project/test_training.py).

The recurrence (Gu & Dao 2023, section 3.2, discretised as in their implementation):
h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t and y_t = C_t h_t.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import torch
from torch.nn import functional as F
from transformers.models.mamba.modeling_mamba import MambaMixer

from training.compiled import address, library


def _call(name: str, tensors: list[torch.Tensor], sizes: list[int]) -> None:
    assert all(tensor.dtype == torch.float32 for tensor in tensors)
    made = library("scan")
    getattr(made, name)(*(address(t) for t in tensors), *(ctypes.c_long(n) for n in sizes))


# Operators of PyTorch's own kind, so that `torch.compile` leaves them whole.
@torch.library.custom_op("training::scan", mutates_args=())
def _compiled_scan(
    delta: torch.Tensor, u: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    y = torch.empty_like(u)
    _call("forward", [delta, u, a, b, c, y], [*delta.shape[:2], *a.shape])
    return y


@torch.library.custom_op("training::scan_gradients", mutates_args=())
def _compiled_gradients(
    delta: torch.Tensor,
    u: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    gy: torch.Tensor,
) -> list[torch.Tensor]:
    saved = (delta, u, a, b, c)
    gradients = [torch.zeros_like(tensor) for tensor in saved]
    _call("backward", [*saved, gy, *gradients], [*delta.shape[:2], *a.shape])
    return gradients


_compiled_scan.register_fake(lambda delta, u, a, b, c: torch.empty_like(u))
_compiled_gradients.register_fake(
    lambda delta, u, a, b, c, gy: [torch.empty_like(tensor) for tensor in (delta, u, a, b, c)]
)
_compiled_scan.register_autograd(
    lambda ctx, gy: tuple(_compiled_gradients(*ctx.saved_tensors, gy.contiguous())),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@torch.library.custom_op("training::convolve", mutates_args=())
def _compiled_convolution(
    u: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    y = torch.empty_like(u)
    _call("convolve", [u, weight, bias, y], [*u.shape, len(weight)])
    return y


@torch.library.custom_op("training::convolve_gradients", mutates_args=())
def _convolution_gradients(
    u: torch.Tensor, weight: torch.Tensor, gy: torch.Tensor
) -> list[torch.Tensor]:
    gradients = [torch.zeros_like(tensor) for tensor in (u, weight, weight[0])]
    _call("convolve_back", [u, weight, gy, *gradients], [*u.shape, len(weight)])
    return gradients


_compiled_convolution.register_fake(lambda u, weight, bias: torch.empty_like(u))
_convolution_gradients.register_fake(
    lambda u, weight, gy: [torch.empty_like(tensor) for tensor in (u, weight, weight[0])]
)
_compiled_convolution.register_autograd(
    lambda ctx, gy: tuple(_convolution_gradients(*ctx.saved_tensors, gy.contiguous())),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]),
)


class _PlainScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, delta: Any, u: Any, a: Any, b: Any, c: Any) -> torch.Tensor:
        steps, rows, width = delta.shape
        states = delta.new_empty(steps, rows, len(a), width)
        y, du = torch.empty_like(delta), delta * u
        old = torch.zeros_like(states[0])
        for t in range(steps):
            new = torch.mul(delta[t, :, None], a, out=states[t])
            new.exp_().mul_(old).addcmul_(du[t, :, None], b[t, :, :, None])
            torch.bmm(c[t, :, None], new, out=y[t, :, None])
            old = new
        ctx.save_for_backward(delta, u, a, b, c, states)
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> Any:
        delta, u, a, b, c, states = ctx.saved_tensors
        gy, du = gy.contiguous(), delta * u
        g_du, g_delta = torch.empty_like(delta), torch.empty_like(delta)
        ga, gb, gc = torch.zeros_like(a), torch.empty_like(b), torch.empty_like(c)
        gh = torch.zeros_like(states[0])
        for t in range(len(delta) - 1, -1, -1):
            gh.addcmul_(gy[t, :, None], c[t, :, :, None])
            torch.bmm(states[t], gy[t, :, :, None], out=gc[t, :, :, None])
            torch.bmm(gh, du[t, :, :, None], out=gb[t, :, :, None])
            torch.bmm(b[t, :, None], gh, out=g_du[t, :, None])
            gh.mul_(torch.exp(delta[t, :, None] * a))
            power = gh * states[t - 1] if t else torch.zeros_like(gh)
            ga += (power * delta[t, :, None]).sum(0)
            torch.sum(power * a, dim=1, out=g_delta[t])
        return g_delta + g_du * u, g_du * delta, ga, gb, gc


def scan(
    delta: torch.Tensor, u: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """y (n_steps, n_rows, width) from delta and u (n_steps, n_rows, width), a (n_states, width)
    and b and c (n_steps, n_rows, n_states), all float32 and contiguous, on the CPU."""
    function: Any = _compiled_scan if _quick() else _PlainScan.apply
    y: torch.Tensor = function(delta, u, a, b, c)
    return y


def _quick() -> bool:
    # What is compiled as a whole is compiled only where there is a C compiler.
    return torch.compiler.is_compiling() or library("scan") is not None


def convolve(u: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The causal convolution of each unit on its own, (n_steps, n_rows, width) as u.

    weight (width, n_taps), bias (width,), float32. In C because the kernel that PyTorch compiles
    for it takes ten times as long: it asks of each number whether it lies before the text.
    """
    taps = weight.t().contiguous()
    if _quick():
        made: torch.Tensor = _compiled_convolution(u.contiguous(), taps, bias)
        return made
    padded = F.pad(u, (0, 0, 0, 0, len(taps) - 1, 0))
    terms = [padded[k : k + len(u)] * tap for k, tap in enumerate(taps)]
    return bias + torch.stack(terms).sum(0)


def mix(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The forward pass of a `MambaMixer` without padding, cache or kernels.

    hidden_states (n_rows, n_steps, n_units), the same out.
    """
    u, gate = self.in_proj(hidden_states.transpose(0, 1)).chunk(2, dim=2)
    u = F.silu(convolve(u.float(), self.conv1d.weight[:, 0], self.conv1d.bias))
    sizes = [self.time_step_rank, self.ssm_state_size, self.ssm_state_size]
    step, b, c = self.x_proj(u).split(sizes, dim=2)
    delta = F.softplus(self.dt_proj(step).float())
    a = -torch.exp(self.A_log.float()).t().contiguous()
    u = u.float()
    y = scan(delta, u, a, b.float().contiguous(), c.float().contiguous()) + u * self.D
    mixed: torch.Tensor = self.out_proj(y * F.silu(gate.float())).transpose(0, 1)
    return mixed


def quicken(model: Any) -> Any:
    """Let the mixers of a Mamba model run through `mix`; returns the model. For training only."""
    for module in model.modules():
        if isinstance(module, MambaMixer):
            module.forward = types.MethodType(mix, module)  # type: ignore[method-assign]
    return model
