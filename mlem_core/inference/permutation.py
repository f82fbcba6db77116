"""Scores by chance: the sentences' labels permuted.

Under the hypothesis that a layer has nothing to do with the features, sentences of the same fold
and of as many stimuli can change their labels (all feature values, word by word). Where folds are
over items (words), it is items that do; where they are over both, the stimuli that an item has in a
part of the folds. For each permutation the model is fitted and scored anew with the whole
cross-validation: with the weights of the true labels the test would find far more than 5 in 100,
because folds that test one model have trained the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import FloatArray, Progress, Report
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.solver import FoldFits
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import in_parts
from mlem_core.pairs.patterns import tested_blocks
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

# Permuted tables at once hold at most this many sums.
CHUNK = 2**24
# Permutations for what the score of a layer is by chance.
SCORE_PERMUTATIONS = 199
# Of `score_above_chance`, by how many permutations.
CHANCE = Stage("score-chance", 2, pd.DataFrame)


def permuted_tables(
    pairs: LayerPairs, layer: int, labels: NDArray[np.int64], train_ranks: bool = False
) -> PairTables:
    """The pair tables of one layer under permuted labels, a permutation in a layer's place.

    Parameters
    ----------
    labels : (n_permutations, n_stimuli), see
        `mlem_core.pairs.resampling_units.StimulusUnits.permuted`
    train_ranks : also sum the ranks among the training pairs of each fold
    """
    from mlem_core.pairs.kernels.weighted import permuted_sums

    tables, values = pairs.tables, pair_values(pairs, layer, train_ranks)
    sums = np.zeros((len(labels), len(values), len(tables.counts)))
    for permutation, row in zip(labels, sums, strict=True):
        permuted_sums(permutation, pairs.cells, values, row)
    copies = tables.of_layers([layer] * len(labels))
    return replace(
        copies,
        target_sums=sums[:, 0],
        rank_sums=np.zeros_like(sums[:, 0]),
        within_sums=sums[:, 1],
        train_sums=(lambda: sums[:, 2:]) if train_ranks else None,
        train_squares=copies.train_squares if train_ranks else None,
    )


def pair_values(pairs: LayerPairs, layer: int, train_ranks: bool = False) -> FloatArray:
    """Values of the pairs of one layer that a fit sums, in condensed order: (n_values, n_pairs).

    Squared distances, centred ranks among the pairs inside a fold (0 elsewhere) and, where they are
    wanted, among the pairs that train each of the folds.
    """
    tables, squared, ranks = pairs.tables, pairs.squared[layer], pairs.ranks[layer]
    block, tested = tables.cell_block[pairs.cells], tested_blocks(tables.n_folds)
    columns = [squared.astype(np.float64), np.zeros(len(squared))]
    for k in range(tables.n_folds):
        inside = block == tested[k]
        columns[1][inside] = _centred(ranks[inside])
    for k in range(tables.n_folds if train_ranks else 0):
        stays = tables.trains[k][block]
        columns.append(np.zeros(len(squared)))
        columns[-1][stays] = _centred(ranks[stays])
    return np.stack(columns)


def _centred(ranks: NDArray[np.uint32]) -> FloatArray:
    from scipy.stats import rankdata  # takes a second, and most runs need no chance

    average: FloatArray = rankdata(ranks)
    return average - (len(average) + 1) / 2


def score_above_chance(
    pairs: LayerPairs,
    fit: Callable[[PairTables], FoldFits],
    *,
    train_ranks: bool = False,
    n_permutations: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Test each layer's held-out ρ (mean over folds) against permuted labels.

    Parameters
    ----------
    fit : `cross_validate` of an estimator
    train_ranks : whether it fits ranks

    Returns
    -------
    model, layer, rho, chance (mean of the permuted ρ), p
    """
    rng = np.random.default_rng(seed)
    observed = fit(pairs.tables).rho.mean(axis=1)
    labels = pairs.units.permuted(n_permutations, rng)
    n_sums = len(pairs.tables.counts) * (2 + train_ranks * pairs.tables.n_folds)
    step = max(1, CHUNK // n_sums)
    rows = []
    for at, (model, number) in enumerate(pairs.layers):

        def rho(part: NDArray[np.int64], at: int = at) -> FloatArray:
            mean: FloatArray = fit(permuted_tables(pairs, at, part, train_ranks)).rho.mean(axis=1)
            return mean

        chance = in_parts(rho, labels, step, threads=1)
        above = int((chance >= observed[at] - 1e-12).sum())
        p = (1 + above) / (1 + n_permutations)
        rows.append((model, number, observed[at], chance.mean(), p))
    return pd.DataFrame(rows, columns=["model", "layer", "rho", "chance", "p"])


def kept_chance(
    analysis: Analysis,
    store: Store,
    selection: Selection,
    n_permutations: int = SCORE_PERMUTATIONS,
    report: Report | None = None,
) -> pd.DataFrame:
    """`score_above_chance` of what is chosen of an analysis; kept in the store.

    Parameters
    ----------
    selection : an estimator that is slow takes hours
    report : called as the layers are done

    Raises
    ------
    InputError
        Representations that are no longer in the store.
    """
    model, say = estimator_named(selection.estimator).model(), report or (lambda _: None)

    def of_layers() -> Iterator[pd.DataFrame]:
        for done, layer in enumerate(selection.layers):
            say(Progress("permuting labels", None, done, len(selection.layers), "layers"))
            asked = selection.features, selection.interactions
            yield score_above_chance(
                LayerPairs.of_sample(analysis, [layer], store, *asked),
                model.cross_validate,
                train_ranks=model.needs_training_ranks,
                n_permutations=n_permutations,
            )

    return CHANCE.get(
        store,
        analysis.key(selection, permutations=n_permutations),
        lambda: pd.concat(of_layers(), ignore_index=True),
    )
