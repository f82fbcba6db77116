"""Importances and ρ that permuted labels have, for all layers.

Of an importance: chance at the level of each feature. Of ρ, a test: under the hypothesis that a
layer has nothing to do with the features, sentences of the same fold and of as many stimuli can
change their labels (all feature values, word by word). Where folds are over items (words), it is
items that do; where they are over both, the stimuli that an item has in a part of the folds. For
each permutation the model is fitted and scored anew with the whole cross-validation: with the
weights of the true labels the test would find far more than 5 in 100, because folds that test one
model have trained the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray, Layer, Progress, Report
from mlem_core.base.work import cores, each
from mlem_core.data.levels import MOVED, exchanges
from mlem_core.estimators.registry import FoldFits, estimator_named
from mlem_core.inference.chance import corrected_p, largest_chance
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT, check_permutations
from mlem_core.inference.layer_pairs import LayerPairs, Relabelled
from mlem_core.inference.resample import in_parts
from mlem_core.measures.importance import fitted
from mlem_core.pairs.patterns import tested_blocks
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.store import Stage, Store

IMPORTANCE_CHANCE = Stage("importance-chance", 1, pd.DataFrame)
# Numbers of pairs that are in memory together.
CHUNK_NUMBERS = 2**27


def importances_by_chance(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    n_permutations: int = PERMUTATIONS,
    report: Report | None = None,
) -> pd.DataFrame:
    """Importances when the labels of a feature are permuted at its level; kept in the store.

    The models are fitted anew, with their regularisation, for each permutation of each feature.

    Raises InputError: interactions; fewer than 20 permutations; representations that are no longer
    in the store.

    Parameters
    ----------
    selection : None is the whole analysis; an estimator that is slow takes hours
    report : called as the features are done

    Returns
    -------
    model, layer, feature, level, moved, importance, chance (mean over permutations), excess, p
    (corrected over the features of a layer); NaN in the last three where too few stimuli change
    their labels
    """
    chosen = analysis.select() if selection is None else selection
    check_permutations(n_permutations)
    if chosen.interactions:
        raise InputError(
            "importances by chance are of single features; found interactions, so choose an "
            "analysis without them."
        )
    key = analysis.key(chosen, permutations=n_permutations)
    say = report or (lambda _: None)
    return IMPORTANCE_CHANCE.get(
        store,
        key,
        lambda: pd.concat(
            _of_chunks(analysis, store, chosen, n_permutations, say), ignore_index=True
        ),
    )


def known_chance(
    analysis: Analysis, store: Store | None, selection: Selection
) -> pd.DataFrame | None:
    """The table of `importances_by_chance` where it is kept, with the usual permutations."""
    return analysis.kept(IMPORTANCE_CHANCE, store, selection, permutations=PERMUTATIONS)


def above_chance(table: pd.DataFrame | None, layer: Layer, feature: str) -> bool | None:
    """Whether a feature matters more in a layer than permuted labels; None where it is not known.

    Parameters
    ----------
    table : of `importances_by_chance`
    """
    if table is None:
        return None
    at = (table["model"] == layer[0]) & (table["layer"] == layer[1])
    p = table.loc[at & (table["feature"] == feature), "p"]
    return bool(p.iloc[0] < SIGNIFICANT) if len(p.dropna()) else None


def chance_in_words(above: bool | None, feature: str, layer: str) -> str:
    """Sentence on `above_chance` of a feature in a layer, by their display names."""
    if above is None:
        return (
            f"The importance of {feature} in {layer} is not corrected for chance: any labels of "
            "the same units may matter as much."
        )
    if above:
        return f"{feature} matters more in {layer} than permuted labels (p < {SIGNIFICANT:g})."
    return f"Permuted labels of {feature} matter as much in {layer}."


def _of_chunks(
    analysis: Analysis, store: Store, chosen: Selection, n_permutations: int, report: Report
) -> Iterator[pd.DataFrame]:
    """The table of a few layers at a time."""
    train_ranks = estimator_named(chosen.estimator).model().needs_training_ranks
    values = 2 + train_ranks * analysis.tables.n_folds
    size = max(1, CHUNK_NUMBERS // (values * analysis.tables.n_pairs))
    parts = range(0, len(chosen.layers), size)
    total = len(parts) * len(chosen.features)
    for done, start in enumerate(parts):
        layers = chosen.layers[start : start + size]
        pairs = LayerPairs.of_sample(analysis, layers, store, chosen.features, False)
        own = pairs.stimuli_of(analysis.stimuli)
        each_pair = np.concatenate(
            [pair_values(pairs, at, train_ranks) for at in range(len(layers))]
        )
        importance = fitted(pairs.tables, chosen.estimator)[1].mean(axis=1)
        found = []
        for f, name in enumerate(pairs.tables.features):
            at = done * len(chosen.features) + f
            report(Progress("permuting labels", None, at, total, "features"))
            # The same permutations for all layers.
            rng = np.random.default_rng([f, n_permutations])
            ways = exchanges(own, pairs.folds, name)
            of_feature = partial(_drawn, pairs, each_pair, chosen.estimator, f)
            shape, labels = (n_permutations, len(layers)), own.values(name)
            found.append(largest_chance(ways, labels, shape, rng, of_feature))
        yield _table(layers, pairs.tables, importance, found)


def _drawn(
    pairs: LayerPairs, values: FloatArray, estimator: str, f: int, givers: IntArray
) -> FloatArray:
    """The importance of a permuted feature: (n_permutations, n_layers), means over folds.

    Parameters
    ----------
    values : (n_layers · n_values, n_pairs) of `pair_values`
    """
    relabelled, n_layers = Relabelled.of(pairs, f), pairs.tables.n_layers

    def tables_of(row: IntArray) -> PairTables:
        keys, sums = relabelled.sums(row, values)
        by_layer = sums[1:].reshape(n_layers, -1, len(keys))
        return replace(_with_sums(relabelled.tables(keys), by_layer), counts=sums[0])

    found = []
    # A fit shares its own work out; the sums do not.
    for start in range(0, len(givers), 4):
        for tables in each(tables_of, givers[start : start + 4], cores()):
            found.append(fitted(tables, estimator)[1].mean(axis=1)[:, f])
    return np.stack(found)


def _table(
    layers: tuple[Layer, ...],
    tables: PairTables,
    importance: FloatArray,
    chance: list[tuple[str, float, FloatArray]],
) -> pd.DataFrame:
    """The rows of some layers; chance of each feature is as `largest_chance` gives it."""
    levels, moved, of_features = zip(*chance, strict=True)
    draws = np.stack(of_features, axis=1)
    known = np.array(moved) >= MOVED
    mean = np.where(known, draws.mean(axis=0).T, np.nan)
    p = np.stack([corrected_p(draws[..., at], own, known) for at, own in enumerate(importance)])
    of_layers = pd.DataFrame(layers, columns=["model", "layer"])
    units = pd.DataFrame({"feature": tables.features, "level": levels, "moved": moved})
    return of_layers.merge(units, how="cross").assign(
        importance=importance.ravel(),
        chance=mean.ravel(),
        excess=(importance - mean).ravel(),
        p=p.ravel(),
    )


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
    return _with_sums(tables.of_layers([layer] * len(labels)), sums)


def _with_sums(tables: PairTables, sums: FloatArray) -> PairTables:
    """Tables of n_layers layers with sums (n_layers, n_values, n_cells) of `pair_values`."""
    ranked = sums.shape[1] > 2
    return replace(
        tables,
        target_sums=sums[:, 0],
        rank_sums=np.zeros_like(sums[:, 0]),
        within_sums=sums[:, 1],
        train_sums=(lambda: sums[:, 2:]) if ranked else None,
        train_squares=tables.train_squares if ranked else None,
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

    Raises InputError: representations that are no longer in the store.

    Parameters
    ----------
    selection : an estimator that is slow takes hours
    report : called as the layers are done
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
