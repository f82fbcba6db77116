"""Erasers of a concept from the states of a layer, runs with them, and minimal pairs.

Erasure is linear, from the states of one layer in the forward pass. LEACE: the affine map that
leaves no linear relation with the concept, and of all such maps the one that moves the states
least, in squared norm. With W the whitening matrix (the inverse square root of the covariance) and
P the orthogonal projection on the columns of W Σ_XZ, a state x becomes x - W⁺ P W (x - mean).

A minimal pair is a word and the form that would be wrong there, from two sentences of a set that
differ in two words, the later one word in two forms: "he does smile" and "we do smile". Each gives
the context in which the form of the other is wrong.

Source: Belrose et al. (2023), LEACE: perfect linear concept erasure in closed form, theorem 4.3.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.representations.extraction import During
from mlem_core.representations.forward import changing
from mlem_core.representations.tokens import TokenizedStimuli
from mlem_core.stimuli.stimulus_set import StimulusSet

# Which tokens of a sentence are changed, as a form calls it.
ERASED = {"all": "all tokens", "stimuli": "the tokens of the stimuli"}
# Directions with a smaller part of the largest variance, or of the largest covariance, are none.
_FLAT, _UNRELATED = 1e-12, 1e-7
# Fewer minimal pairs are none.
FEWEST = 10


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


def leace(states: FloatArray, concept: FloatArray, spared: FloatArray | None = None) -> Eraser:
    """Eraser of a concept (n, n_columns) fitted on states (n, n_units).

    Parameters
    ----------
    spared : (n, n_spared) columns whose covariance with the states stays as it is
    """
    mean = states.mean(axis=0)
    centred = states - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(states))
    kept = variances > _FLAT * max(variances[-1], 1e-300)
    spread, axes = np.sqrt(variances[kept]), axes[:, kept]
    whitened = centred @ (axes / spread)

    def related(columns: FloatArray) -> FloatArray:
        return whitened.T @ (columns - columns.mean(axis=0)) / len(states)

    shared = related(concept)
    if spared is not None:
        basis = _basis(related(spared))
        shared = shared - basis @ (basis.T @ shared)
    u = _basis(shared)
    return Eraser(mean, axes @ (spread[:, None] * u), (axes @ (u / spread[:, None])).T)


def _basis(columns: FloatArray) -> FloatArray:
    """Orthonormal directions of columns (n, n_columns), without those that are rounding errors."""
    u, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return u[:, sizes > _UNRELATED * max(sizes[0], 1e-300)] if len(sizes) else u


def erased_passes(
    model: Any,
    n_layers: int,
    tokens: TokenizedStimuli,
    layer: int,
    erasers: Sequence[Eraser],
    fold: IntArray,
    positions: str,
    shifts: FloatArray,
) -> During:
    """What a batch of sentences, given by their numbers, is run in: without a concept.

    Parameters
    ----------
    layer : whose states are changed, as they enter the next block
    erasers : one for each fold
    fold : (n_sentences,) which of them a sentence has
    positions : one of `ERASED`
    shifts : (n_stimuli, rank) how far from the mean, in coordinates of `right`, a stimulus goes
        with what stands between it and the one before; 0: to the mean
    """
    import torch

    rank = max(len(one.right) for one in erasers)
    device, dtype = model.device, next(model.parameters()).dtype

    def stacked(arrays: list[FloatArray]) -> Any:
        return torch.from_numpy(np.stack(arrays)).to(device, dtype)

    means = stacked([one.mean[None] for one in erasers])
    left, right = (
        stacked([np.pad(own, ((0, rank - len(own)), (0, 0))) for own in arrays])
        for arrays in zip(*((one.left.T, one.right) for one in erasers), strict=True)
    )

    @contextlib.contextmanager
    def during(batch: IntArray) -> Iterator[None]:
        own = torch.from_numpy(fold[batch]).to(device)
        changed = np.full((len(batch), len(tokens.tokens[batch[0]])), positions != "stimuli")
        targets = np.zeros((*changed.shape, rank))
        for at, sentence in enumerate(batch):
            start, rows = 0, tokens.stimuli[sentence]
            for row in rows[np.argsort(tokens.spans[rows, 0])]:
                changed[at, tokens.spans[row, 0] : tokens.spans[row, 1] + 1] = True
                targets[at, start:] = shifts[row]
                start = tokens.spans[row, 1] + 1
        where, target = (torch.from_numpy(each).to(device, dtype) for each in (changed, targets))

        def change(state: Any) -> Any:
            found = (state - means[own]) @ right[own].transpose(1, 2) - target
            return state - where[..., None] * (found @ left[own])

        with changing(model, n_layers, layer, change):
            yield

    return during


class Forms(NamedTuple):
    """Contexts with a right and a wrong form.

    sentences : the context with the right form, then each with the wrong one: (2 · n,) words, the
        last one of those that differ
    rows : (n,) the stimulus with the right form, or whose sentence has it
    """

    sentences: StimulusSet
    rows: IntArray


def minimal_pairs(stimuli: StimulusSet, feature: str) -> Forms | None:
    """The contexts in which a feature decides the form of a word; None with fewer than `FEWEST`.

    Of words, the two that differ have the same value of the feature in a sentence; of sentences,
    all other features are the same.
    """
    sentences = [tuple(sentence.split()) for sentence in stimuli.sentences]
    groups: dict[tuple[int, int, tuple[str, ...]], list[tuple[str, ...]]] = defaultdict(list)
    # The stimulus at each word of a sentence; of whole sentences at every word theirs.
    rows = dict[tuple[tuple[str, ...], int], int]()
    for stimulus, words in enumerate(sentences):
        indices = (
            range(len(words)) if stimuli.word_index is None else [stimuli.word_index[stimulus]]
        )
        rows |= {(words, int(index)): stimulus for index in indices}
    for words in dict.fromkeys(sentences):
        for p, q in combinations(range(len(words)), 2):
            same = (*words[:p], "", *words[p + 1 : q], "", *words[q + 1 :])
            groups[p, q, same].append(words)
    values, others = stimuli.values(feature), list[tuple[Any, ...]]()
    if stimuli.word_index is None:
        names = [column.name for column in stimuli.features if column.name != feature]
        others = list(zip(*(stimuli.values(name).tolist() for name in names), strict=True))
    known = ~pd.isna(values)
    forms = dict[tuple[tuple[str, ...], int, str], int]()
    for (p, q, _), group in groups.items():
        for a, b in combinations(group, 2):
            one_word = a[q].startswith(b[q]) or b[q].startswith(a[q])
            if not one_word or a[p] == b[p] or a[q] == b[q]:
                continue
            for right, wrong in ((a, b), (b, a)):
                row, other = rows.get((right, q)), rows.get((wrong, q))
                if row is None or other is None or not (known[row] and known[other]):
                    continue
                if values[row] == values[other] or (others and others[row] != others[other]):
                    continue
                before = rows.get((right, p))
                if stimuli.word_index is None or (
                    before is not None and values[before] == values[row]
                ):
                    forms[right, q, wrong[q]] = row
    if len(forms) < FEWEST:
        return None
    texts = [" ".join(words) for words, _, _ in forms]
    for words, at, form in forms:
        texts.append(" ".join((*words[:at], form, *words[at + 1 :])))
    table = pd.DataFrame({"sentence": texts, "word_index": [at for _, at, _ in forms] * 2})
    both = StimulusSet(
        stimuli.name, table, (), table["word_index"].to_numpy(np.int64), np.arange(len(table))
    )
    return Forms(both, np.array(list(forms.values())))
