"""Errors of results that come from the choice of the pairs, where not all were compared.

An incomplete design of the pairs is of several independent ones. RSA correlations and contributions
of each vary by as much more than those of all as they have fewer pairs. Scores and importances are
not so linear in the pairs: with an eighth of them another penalty is chosen and other weights are
0. They come from balanced halves of the designs instead; each is as far from the whole, in the mean
square, as this is from all pairs; the whole is then made as the halves are, of ranks within each
design. A number that fewer pairs make lower, as they do a ceiling (means by pattern come from fewer
pairs), is lower in a part than in the whole: a bias that goes with 1 / pairs is that difference for
halves, and 1 / (n - 1) of it for each of n designs, which comes nearer for ceilings
(`make validate`).

A half of the pairs, drawn as they were, differs from all of them as much as these do from another
draw, and a model is fitted to it nearly as to all of them: its penalty, and which weights are 0,
are those of about as many pairs. Of n designs a Hadamard matrix gives n - 1 ways to halve them in
which any two designs are as often in one half as apart, so that for a mean over the pairs the mean
squared difference of the halves from all is the variance between designs over n, with nothing lost.

Source: McCarthy (1969), Pseudo-replication: half samples (balanced half-samples).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.text import number
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.shapley import sampled_orders
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.patterns import tested_blocks
from mlem_core.pairs.tables import PairTables, sums_by

# The columns of the table, and of what type they are.
COLUMNS = {
    **{"measure": "str", "model": "str", "layer": "int64", "feature": "str"},
    **{"model_b": "str", "layer_b": "int64"},
    **dict.fromkeys(("value", "error", "bias"), "float64"),
}
# A ceiling that is too low by less is not spoken of.
LOW = 5e-4
# Sums by design and cell of a layer that are kept for its contributions.
MOST_SUMS = 2**19


class OfDesigns(NamedTuple):
    """Scores and sums of the designs of one layer.

    off : (n_halves, 2 + n_parts) by what scores from halves differ from those of all
    ceilings, squares : (n_designs,) and the sums of the squared ranks
    sums : (2, n_designs, n_cells) pairs, and sums of ranks, by the cells of all pairs; (2, 0, 0)
        where these are more than `MOST_SUMS`, or features more than contributions are exact for
    """

    off: FloatArray
    ceilings: FloatArray
    squares: FloatArray
    sums: NDArray[np.float32]


class DesignScores:
    """The scores and importances of each layer from halves of its designs, as they are made."""

    def __init__(self, estimator: str, interactions: bool) -> None:
        # One that takes a second a layer would take it for each half.
        self.estimator = "ridge" if estimator_named(estimator).slow else estimator
        self._interactions = interactions
        self._found: dict[int, OfDesigns] = {}
        self._names: tuple[str, ...] = ()

    def of(self, designs: Sequence[PairTables]) -> OfDesigns:
        """Scores and sums of one layer's designs, fitted on balanced halves of them."""
        halves = np.concatenate([self._scores(tables) for tables in half_samples(designs)])
        whole = together(designs)
        ceilings = np.array([fold_ceilings(tables).mean() for tables in designs])
        squares = np.array([tables.rank_squares[0] for tables in designs])
        return OfDesigns(halves - self._scores(whole), ceilings, squares, _sums(designs, whole))

    def keep(self, position: int, found: OfDesigns) -> None:
        """Take what `of` gave for a layer."""
        self._found[position] = found

    def _scores(self, tables: PairTables) -> FloatArray:
        """(n_layers, 2 + n_parts) ρ, ceiling and importances, means over folds."""
        # A metric of features coded by value has no products.
        own = tables.with_interactions(self._interactions and not tables.resolved)
        self._names = own.columns.parts
        return mean_scores(own, self.estimator)

    def table(
        self,
        layers: Sequence[Layer],
        positions: Sequence[int],
        tables: PairTables,
        rsa: FloatArray,
        of_designs: FloatArray,
    ) -> pd.DataFrame:
        """measure, model, layer, feature, model_b, layer_b, value, error, bias.

        The measures are rho, ceiling and importance (means over folds), and of two layers rsa and
        contribution (of features, and "unexplained"; chance is not taken off).

        Parameters
        ----------
        positions : of these layers, as `keep` was given them
        tables, rsa : of these layers, from all designs
        of_designs : (n_designs, n_layers, n_layers) RSA from each
        """
        rows: list[tuple[Any, ...]] = []
        scores = self._scores(tables)
        named = [("rho", ""), ("ceiling", ""), *(("importance", f) for f in self._names)]
        for (model, layer), position, whole in zip(layers, positions, scores, strict=True):
            found = self._found[position]
            errors = np.sqrt((found.off**2).mean(axis=0))
            biases = found.off.mean(axis=0)
            biases[1] = _of_designs(whole[1], found.ceilings)[1]
            about = zip(whole, errors, biases, strict=True)
            for (measure, feature), numbers in zip(named, about, strict=True):
                rows.append((measure, model, layer, feature, "", -1, *map(float, numbers)))
        for a, first in enumerate(layers):
            for b in range(a + 1, len(layers)):
                between = _of_designs(rsa[a, b], of_designs[:, a, b])
                rows.append(("rsa", *first, "", *layers[b], float(rsa[a, b]), *between))
        split = decompose(tables, rsa)
        terms = self._terms([self._found[at] for at in positions], tables, of_designs)
        for (a, first), (b, other) in itertools.combinations(enumerate(layers), 2):
            for k, term in enumerate(split.names if len(terms) else ()):
                value = float(split.values[k, a, b])
                between = _of_designs(value, terms[:, k, a, b])
                rows.append(("contribution", *first, term, *other, value, *between))
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def _terms(
        self, found: Sequence[OfDesigns], tables: PairTables, of_designs: FloatArray
    ) -> FloatArray:
        """(n_designs, n_features + 1, n_layers, n_layers) contributions, from each design."""
        draws = []
        for k in range(found[0].sums.shape[1]):
            ranks = np.stack([one.sums[1, k] for one in found]).astype(np.float64)
            own = replace(
                tables,
                counts=found[0].sums[0, k].astype(np.float64),
                rank_sums=ranks,
                rank_squares=np.array([one.squares[k] for one in found]),
            )
            draws.append(decompose(own, of_designs[k]).values)
        return np.array(draws)


def _sums(designs: Sequence[PairTables], whole: PairTables) -> NDArray[np.float32]:
    """Pairs, and sums of the ranks of a layer, by the cells of all pairs; see `OfDesigns`."""
    n_cells, n_patterns = len(whole.counts), whole.n_patterns
    exact = sampled_orders(whole.codes) == 0
    if not exact or len(designs) * n_cells > MOST_SUMS:
        return np.zeros((2, 0, 0), dtype=np.float32)
    keys = whole.cell_block * n_patterns + whole.cell_pattern
    found = np.zeros((2, len(designs), n_cells), dtype=np.float32)
    for k, own in enumerate(designs):
        at = np.searchsorted(keys, own.cell_block * n_patterns + own.cell_pattern)
        found[:, k, at] = own.counts, own.rank_sums[0]
    return found


def _of_designs(value: float, parts: FloatArray) -> tuple[float, float]:
    """Standard error and bias of the value from all designs, from those of each (n,)."""
    n = len(parts)
    error = parts.std(ddof=1) / np.sqrt(n)
    return float(error), float((parts.mean() - value) / (n - 1))


def none() -> pd.DataFrame:
    """The table of an analysis of all pairs."""
    return pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in COLUMNS.items()})


def errors_sentence(errors: pd.DataFrame, n_pairs: int, n_all: int, n_designs: int) -> str:
    """The sentence on an analysis of some pairs; empty where it is of all."""
    if errors.empty:
        return ""
    # Rounded up: "at most" is then true of what is written.
    largest = np.ceil(errors.groupby("measure")["error"].max() * 1e4) / 1e4
    words = {"rho": "a held-out ρ", "importance": "an importance", "rsa": "an RSA correlation"}
    words["contribution"] = "a contribution"
    of = [
        f"{number(largest[name], 4)} of {text}" for name, text in words.items() if name in largest
    ]
    ceilings = errors[errors["measure"] == "ceiling"]
    bias = -float(ceilings["bias"].min())
    low = f"; ceilings are too low by up to about {number(bias, 4)}" if bias >= LOW else ""
    return (
        f"Computed on {n_pairs:,} of {n_all:,} pairs, {n_designs} independent balanced designs; "
        f"from how these differ, the choice of the pairs has a standard error of at most "
        f"{', '.join(of)}, with the same stimuli{low} (pair_errors.csv has each)."
    )


def half_samples(designs: Sequence[PairTables]) -> Iterator[PairTables]:
    """The tables of 2 (n - 1) balanced halves of n designs, each followed by the other half.

    `designs` are of the same layers and features, a power of 2 of them, see `together`.
    """
    from scipy.linalg import hadamard

    for row in hadamard(len(designs))[1:]:
        for sign in (1, -1):
            yield together([own for own, side in zip(designs, row, strict=True) if side == sign])


def together(designs: Sequence[PairTables]) -> PairTables:
    """The tables of the pairs of several designs of the same stimuli, layers and features.

    Counts and distances are exact. A rank is that among the pairs of its own design, in proportion
    to how many there are: nothing is sorted again, and a correlation is a mean over the designs.
    """
    first = designs[0]
    n_blocks, n_patterns = first.target_low.shape[1], first.n_patterns
    keys = np.concatenate([own.cell_block * n_patterns + own.cell_pattern for own in designs])
    present = np.zeros(n_blocks * n_patterns, dtype=bool)
    present[keys] = True
    cells, at = np.flatnonzero(present), (np.cumsum(present) - 1)[keys]

    def summed(parts: Sequence[FloatArray]) -> FloatArray:
        return sums_by(at, np.concatenate(parts, axis=-1))

    blocks = [np.bincount(own.cell_block, own.counts, n_blocks) for own in designs]
    pairs = np.array(blocks, dtype=np.float64)
    of_all, of_block = _growth(pairs.sum(axis=1)), _growth(pairs)
    tested = tested_blocks(first.n_folds)
    found = replace(
        first,
        cell_block=cells // n_patterns,
        cell_pattern=cells % n_patterns,
        counts=summed([own.counts for own in designs]),
        target_sums=summed([own.target_sums for own in designs]),
        rank_sums=summed([own.rank_sums * by for own, by in zip(designs, of_all, strict=True)]),
        within_sums=summed(
            [
                own.within_sums * by[own.cell_block]
                for own, by in zip(designs, of_block, strict=True)
            ]
        ),
        rank_squares=np.sum([own.rank_squares for own in designs] * of_all[:, None] ** 2, axis=0),
        within_squares=np.sum(
            [own.within_squares for own in designs] * of_block[:, None, tested] ** 2, axis=0
        ),
        target_low=np.min([own.target_low for own in designs], axis=0),
        target_high=np.max([own.target_high for own in designs], axis=0),
        train_sums=None,
        train_squares=None,
    )
    squares = [own.train_squares for own in designs if own.train_squares is not None]
    if not squares:
        return found
    of_fold = _growth(pairs @ first.trains.T)
    parts = [own.training_ranks * by[:, None] for own, by in zip(designs, of_fold, strict=True)]
    return replace(
        found,
        train_sums=cache(lambda: summed(parts)),
        train_squares=np.sum(squares * of_fold[:, None] ** 2, axis=0),
    )


def _growth(pairs: FloatArray) -> FloatArray:
    """Number of all pairs over that of each design (n_designs, ...); 0 for a design without any."""
    return np.divide(pairs.sum(axis=0), pairs, out=np.zeros_like(pairs), where=pairs > 0)
