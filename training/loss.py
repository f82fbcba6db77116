"""Cross entropy of a large vocabulary, its gradient made in one pass over the logits.

PyTorch's takes half of the time of a step of these small networks: it keeps float32 logits,
their logarithms and the gradient, each of (n_tokens, n_words). Here the logits are bfloat16, as
the matrix product gives them, and `loss.c` puts the gradient in their place; where there is no C
compiler, PyTorch does the same row by row.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from training.compiled import address, library
from training.products import matmul


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Any, weight: Any, bias: Any, targets: Any) -> torch.Tensor:
        narrow, words = states.to(torch.bfloat16), weight.to(torch.bfloat16)
        gradient = matmul(narrow, words.T)
        nats, g_bias = in_place(gradient, targets.contiguous(), bias)
        ctx.save_for_backward(matmul(gradient, words), matmul(gradient.T, narrow), g_bias)
        ctx.share, ctx.dtype = 1 / len(nats), states.dtype
        return nats.mean()

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> Any:
        g_states, g_weight, g_bias = ctx.saved_tensors
        factor = upstream * ctx.share
        g_states = (g_states * factor).to(ctx.dtype)
        g_weight = g_weight.float().mul_(factor)
        return g_states, g_weight, None if g_bias is None else g_bias * factor, None


def in_place(
    logits: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(nats (n_tokens,), gradient of their sum by the bias (n_words,) or None).

    logits (n_tokens, n_words), bfloat16, become the gradient of each token's nats.
    """
    g_bias = None if bias is None else torch.zeros_like(bias)
    made = library("loss")
    if made is not None:
        nats = torch.empty(len(logits))
        sizes = [ctypes.c_long(size) for size in logits.shape]
        tensors = (logits, targets, bias, g_bias, nats)
        made.cross_entropy(*(address(tensor) for tensor in tensors), *sizes)
        return nats, g_bias
    nats = torch.empty(len(logits))
    for first in range(0, len(logits), 64):
        part, asked = logits[first : first + 64], targets[first : first + 64, None]
        own = part.float() if bias is None else part.float() + bias
        nats[first : first + 64] = own.logsumexp(1) - own.gather(1, asked)[:, 0]
        own = own.softmax(1).scatter_add_(1, asked, torch.full(asked.shape, -1.0))
        if g_bias is not None:
            g_bias += own.sum(0)
        part.copy_(own)
    return nats, g_bias


def mean_nats(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    """Mean negative log likelihood, in nats, of targets (n_tokens,).

    states (n_tokens, n_units), weight (n_words, n_units), bias (n_words,); products in bfloat16.
    """
    mean: torch.Tensor = _Mean.apply(states, weight, bias, targets)
    return mean
