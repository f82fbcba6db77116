"""Linear erasure of a concept from the states of one layer, in the forward pass.

LEACE: the affine map that leaves no linear relation with the concept, and of all such maps the one
that moves the states least, in squared norm. With W the whitening matrix (the inverse square root
of the covariance) and P the orthogonal projection on the columns of W Σ_XZ, a state x becomes
x - W⁺ P W (x - mean).

Source: Belrose et al. (2023), LEACE: perfect linear concept erasure in closed form, theorem 4.3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.models.extraction import During
from mlem_core.models.forward import changing
from mlem_core.models.tokens import TokenizedStimuli

# Which tokens of a sentence are changed, as a form calls it.
ERASED = {"all": "all tokens", "stimuli": "the tokens of the stimuli"}
# Directions with a smaller part of the largest variance, or of the largest covariance, are none.
_FLAT, _UNRELATED = 1e-12, 1e-7


class Eraser(NamedTuple):
    """The map of states x to x - left (right (x - mean)).

    mean, left, right : (n_units,), (n_units, rank), (rank, n_units)
    """

    mean: FloatArray
    left: FloatArray
    right: FloatArray

    def __call__(self, states: FloatArray) -> FloatArray:
        """States (n, n_units) without the concept."""
        changed: FloatArray = states - (states - self.mean) @ self.right.T @ self.left.T
        return changed


def leace(states: FloatArray, concept: FloatArray) -> Eraser:
    """Eraser of a concept (n, n_columns) fitted on states (n, n_units)."""
    mean = states.mean(axis=0)
    centred = states - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(states))
    kept = variances > _FLAT * max(variances[-1], 1e-300)
    spread, axes = np.sqrt(variances[kept]), axes[:, kept]
    shared = centred.T @ (concept - concept.mean(axis=0)) / len(states)
    u, sizes, _ = np.linalg.svd((axes.T @ shared) / spread[:, None], full_matrices=False)
    u = u[:, sizes > _UNRELATED * max(sizes[0], 1e-300)] if len(sizes) else u
    return Eraser(mean, axes @ (spread[:, None] * u), (axes @ (u / spread[:, None])).T)


class ErasedPasses(NamedTuple):
    """Erasers for the forward passes of tokenised sentences: of its fold for each sentence.

    layer : whose states are changed, as they enter the next block
    erasers : one for each fold
    fold : (n_sentences,) which of them a sentence has
    positions : one of `ERASED`
    """

    layer: int
    erasers: Sequence[Eraser]
    fold: IntArray
    positions: str

    def during(self, model: Any, n_layers: int, tokens: TokenizedStimuli) -> During:
        """What a batch of sentences, given by their numbers, is run in: a context manager."""
        import torch

        rank = max(len(one.right) for one in self.erasers)
        device, dtype = model.device, next(model.parameters()).dtype

        def stacked(arrays: list[FloatArray]) -> Any:
            return torch.from_numpy(np.stack(arrays)).to(device, dtype)

        means = stacked([one.mean[None] for one in self.erasers])
        left, right = (
            stacked([np.pad(own, ((0, rank - len(own)), (0, 0))) for own in arrays])
            for arrays in zip(*((one.left.T, one.right) for one in self.erasers), strict=True)
        )

        @contextlib.contextmanager
        def during(batch: IntArray) -> Iterator[None]:
            own = torch.from_numpy(self.fold[batch]).to(device)
            where = torch.from_numpy(self._where(batch, tokens)).to(device, dtype)

            def change(state: Any) -> Any:
                found = (state - means[own]) @ right[own].transpose(1, 2) @ left[own]
                return state - where[..., None] * found

            with changing(model, n_layers, self.layer, change):
                yield

        return during

    def _where(self, batch: IntArray, tokens: TokenizedStimuli) -> FloatArray:
        """(n_sentences, n_tokens) 1 where a token is changed, else 0."""
        where = np.ones((len(batch), len(tokens.tokens[batch[0]])))
        if self.positions == "stimuli":
            where[:] = 0.0
            for own, sentence in zip(where, batch, strict=True):
                for row in tokens.stimuli[sentence]:
                    own[tokens.spans[row, 0] : tokens.spans[row, 1] + 1] = 1.0
        return where
