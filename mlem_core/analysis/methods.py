"""The methods of both papers on the same layers, and the first paper's numbers beside ours.

Ridge is fitted again whenever a choice changes. An estimator that searches for the highest rank
correlation takes about a second a layer, which is worth a cache; the cached fit of a layer holds
whichever other layers are shown. Last comes how far two methods agree as noise is added to a layer
(Jalouzot et al. 2024, figure S8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection, check_layers
from mlem_core.analysis.representations import representations_of
from mlem_core.analysis.results import Fits, Results, results_from_tables
from mlem_core.base.errors import InputError
from mlem_core.base.labels import SEPARATOR
from mlem_core.base.typing import Counted, FloatArray, Layer, Progress, Report, counting, layer_name
from mlem_core.estimators.registry import ESTIMATORS, FoldFits, can_resolve, every_estimator
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.pairs.patterns import PairIndex
from mlem_core.storage.store import Stage, Store

# The two that the second paper puts beside each other.
COMPARED = ("spearman", "frrsa")
# What figures call the methods; an estimator that is not here has its own name.
NAMES = {
    "ridge": "MLEM, ridge",
    "ridge-rank": "MLEM, ridge on ranks",
    "spearman": "MLEM, Spearman",
    "frrsa": "FR-RSA",
    "random-forest": "random forest",
    "univariate": "single units (mean)",
}


def estimators(analysis: Analysis, selection: Selection) -> list[str]:
    """The estimators that can fit what is selected of an analysis, with no further package."""
    resolved = [name for name in analysis.tables.resolved if name in selection.features]
    return [
        name
        for name in every_estimator()
        if not resolved or can_resolve(name, selection.interactions)
    ]


def slow(analysis: Analysis, selection: Selection) -> list[str]:
    """Names of the estimators that screens fit in the background."""
    return [name for name in estimators(analysis, selection) if ESTIMATORS[name].slow]


def fit_slow(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> None:
    """Fit what is selected by every slow estimator, each layer kept in the store.

    Raises as `mlem_core.analysis.methods.fitted_results`.
    """
    names = slow(analysis, selection)
    for done, name in enumerate(names):

        def counted(one: Progress, before: int = done * len(selection.layers)) -> None:
            if report is not None:
                total = len(names) * len(selection.layers)
                report(Progress("fits", None, before + one.done, total, "layers"))

        fitted_results(analysis, store, replace(selection, estimator=name), counted)


def results_by_method(analysis: Analysis, store: Store, selection: Selection) -> dict[str, Results]:
    """The results of a selection by each estimator; those of slow ones where they are kept."""
    found = {}
    for name in estimators(analysis, selection):
        chosen = replace(selection, estimator=name)
        if not ESTIMATORS[name].slow:
            found[name] = analysis.results_of(chosen)
        elif (kept := kept_results(analysis, store, chosen)) is not None:
            found[name] = kept
    return found


def scores_by_method(
    found: Mapping[str, Results], others: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """The held-out ρ of each method: method, model, layer, fold, rho; of single units their mean.

    Parameters
    ----------
    found : of `results_by_method`
    others : of `mlem_core.analysis.baselines.with_rho`

    Source: Jalouzot et al. 2024, figures S9 and S12.
    """
    keys = ["model", "layer", "fold"]
    parts = {name: results.scores[[*keys, "rho"]] for name, results in found.items()}
    for name, table in others.items():
        # A fold of a forest has its ρ in the row of every feature.
        parts[name] = table.groupby(keys, sort=False)["rho"].mean().reset_index()
    tables = [table.assign(method=name) for name, table in parts.items()]
    return pd.concat(tables, ignore_index=True)[["method", *keys, "rho"]]


def units(univariate: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Fits of single units by layer: model, layer, n_units, median, best, above_whole, whole.

    median and best are of the held-out ρ of the units (mean over folds), whole is that of the
    metric model of all of them together, above_whole the share of units above it.

    Parameters
    ----------
    univariate : model, layer, unit, fold, rho, see `mlem_core.analysis.baselines.univariate`
    results : of the same layers

    Source: Jalouzot et al. 2024, figure S12.
    """
    rho = univariate.groupby(["model", "layer", "unit"], sort=False)["rho"].mean()
    of_layers = rho.groupby(["model", "layer"], sort=False)
    whole = results.scores.groupby(["model", "layer"])["rho"].mean()
    rows = [
        (*at, len(own), own.median(), own.max(), float((own > whole[at]).mean()), whole[at])
        for at, own in of_layers
    ]
    names = ["model", "layer", "n_units", "median", "best", "above_whole", "whole"]
    return pd.DataFrame(rows, columns=names)


def agreement_by_layer(first: Results, second: Results) -> pd.DataFrame:
    """Agreement of two methods on each layer: model, layer, fold, frobenius, tau.

    frobenius is the Frobenius distance of the two matrices of weights, each of norm 1, from 0 to 2;
    tau the weighted Kendall τ of the two importance profiles.

    Both are of the same layers, folds and features, without features coded by value.

    Raises InputError: they are not.
    """
    keys = ["model", "layer", "fold"]
    sides = [
        one.weights.merge(one.importance, on=[*keys, "feature"], validate="one_to_one")
        for one in (first, second)
    ]
    return agreement_of_methods(sides[0], sides[1], keys)


def agreement_of_methods(
    first: pd.DataFrame, second: pd.DataFrame, keys: list[str]
) -> pd.DataFrame:
    """Agreement of two methods on the rows that `keys` tell: `keys`, frobenius, tau.

    `first` and `second` have `keys`, feature (the name of a term), weight, importance.

    Raises InputError: the two do not have the same rows and terms.

    Source: Jalouzot et al. 2024, figures S7 and S8.
    """
    sides = [
        tuple(one.pivot(index=keys, columns="feature", values=v) for v in ("weight", "importance"))
        for one in (first, second)
    ]
    (weights, importance), (others, other_importance) = sides
    same = weights.index.equals(others.index) and weights.columns.equals(others.columns)
    if not same or any(table.isna().any(axis=None) for side in sides for table in side):
        raise InputError(
            "two methods are compared on the same layers, folds and features; found others."
        )
    # An entry beside the diagonal stands in the matrix twice.
    times = np.array([1.0 + (SEPARATOR in term) for term in weights.columns])
    one, other = (_of_norm_one(table.to_numpy(), times) for table in (weights, others))
    profiles = np.stack([importance.to_numpy(), other_importance.to_numpy()], axis=1)
    return weights.index.to_frame(index=False).assign(
        frobenius=np.sqrt(((one - other) ** 2) @ times),
        tau=[weighted_tau(two)[0, 1] for two in profiles],
    )


def _of_norm_one(weights: FloatArray, times: FloatArray) -> FloatArray:
    """(n_rows, n_terms) divided by the Frobenius norm of the matrix; without weights, all 0."""
    norm = np.sqrt(weights**2 @ times)[:, None]
    found: FloatArray = np.divide(weights, norm, out=np.zeros_like(weights), where=norm > 0)
    return found


_BERT, _GPT2, _MAMBA = "bert-base-uncased", "gpt2", "state-spaces/mamba-130m-hf"
PUBLISHED_MODELS = (_BERT, _GPT2, _MAMBA)
# Numbers of Salle et al. 2024 by layers: figure 2 (of all), and figure 4 (the highest and the
# lowest of the matrix).
PUBLISHED: dict[tuple[Layer, ...], float] = {
    (): 0.69,
    ((_GPT2, 8), (_BERT, 4)): 0.77,
    ((_MAMBA, 8), (_BERT, 4)): -0.24,
}


def beside_published(results: Results) -> pd.DataFrame | None:
    """The published numbers and ours: quantity, layer_a, layer_b, published, here.

    Returns None where its models are not the three of the paper. The agreement has no layers; a
    pair of layers that is not in the analysis, and an agreement that is not defined, has no number
    here.

    Source: Salle et al. 2024.
    """
    if {model for model, _ in results.layers} != set(PUBLISHED_MODELS):
        return None
    square = results.similarity_profiles
    rows = [("agreement", "", "", PUBLISHED[()], results.agreement)]
    for a, b in filter(None, PUBLISHED):
        names = layer_name(a), layer_name(b)
        here = float(square.loc[names]) if {*names} <= {*square.index} else math.nan
        rows.append(("weighted_tau", *names, PUBLISHED[a, b], here))
    return pd.DataFrame(rows, columns=["quantity", "layer_a", "layer_b", "published", "here"])


class _Fits(NamedTuple):
    """Fits and importances, as `mlem_core.measures.importance.fitted` gives them."""

    fits: FoldFits
    importance: FloatArray


STAGE = Stage("fits", 3, _Fits)


def kept_results(analysis: Analysis, store: Store, selection: Selection) -> Results | None:
    """The results of a selection if its fits, or those of each layer, are cached; else None."""
    whole = analysis.kept(STAGE, store, selection)
    if whole is not None:
        return analysis.results_of(selection, whole)
    cached = [analysis.kept(STAGE, store, own) for own in _each(selection)]
    there = [fits for fits in cached if fits is not None]
    return None if len(there) < len(cached) else analysis.results_of(selection, _joined(there))


def keep_fits(analysis: Analysis, store: Store, selection: Selection) -> Results:
    """The results of a selection whose fits are quick; they are cached."""
    return analysis.results_of(selection, _fits(analysis, store, selection))


def fitted_results(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Results:
    """The results of a selection; fits that are not cached yet are computed first.

    `report` is called as the layers are done. Raises as `Analysis.results`.
    """
    cached, total = [], len(selection.layers)
    count = counting(report or (lambda _: None), "fits", "layers")
    count(0, total)
    for done, own in enumerate(_each(selection), 1):
        cached.append(_fits(analysis, store, own))
        count(done, total)
    return analysis.results_of(selection, _joined(cached))


def _each(selection: Selection) -> list[Selection]:
    """The same selection of each of its layers."""
    return [replace(selection, layers=(layer,)) for layer in selection.layers]


def _fits(analysis: Analysis, store: Store, selection: Selection) -> _Fits:
    """Fits of a selection, from the store or computed and kept."""
    tables, _ = analysis.subset(selection)
    key, estimator = analysis.key(selection), selection.estimator
    return STAGE.get(store, key, lambda: _Fits(*fitted(tables, estimator)))


def _joined(by_layer: Sequence[Fits]) -> Fits:
    """The fits of n_layers layers as one, from those of each."""
    fits, importance = zip(*by_layer, strict=True)
    names = [part.name for part in fields(FoldFits)]
    joined = {name: np.concatenate([getattr(one, name) for one in fits]) for name in names}
    return FoldFits(**joined), np.concatenate(importance)


# Standard deviations of the noise, in those of each unit.
NOISE_LEVELS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
NOISE_STAGE = Stage("noise-agreement", 2, pd.DataFrame)


def can_be_made(analysis: Analysis, selection: Selection, layer: Layer) -> bool:
    """Whether both methods can fit what is selected, and the layer has units that can be noisy."""
    both = set(COMPARED) <= set(estimators(analysis, selection))
    return both and analysis.spec.distance_of(layer[0]) != PRECOMPUTED


def find_noise(
    analysis: Analysis, store: Store, selection: Selection, layer: Layer
) -> pd.DataFrame | None:
    """Cached agreement that `make_noise` made for a layer; None where there is none."""
    return NOISE_STAGE.find(store, _noise_key(analysis, selection, layer))


def make_noise(
    analysis: Analysis,
    store: Store,
    selection: Selection,
    layer: Layer,
    report: Report | None = None,
) -> pd.DataFrame:
    """Agreement of MLEM and FR-RSA on a layer with noise: noise, fold, frobenius, tau.

    To each unit Gaussian noise is added, of `NOISE_LEVELS` times its standard deviation; the same
    numbers at every level, drawn once by the seed of the analysis. It is kept in the store.

    Parameters
    ----------
    selection : its features and interactions
    layer : of the analysis
    report : called as the fits go on

    Raises InputError: the layer is not in the analysis, holds distances, or is no longer in the
    store; a method cannot fit what is selected.
    """
    check_layers([layer], analysis.layers)
    if not can_be_made(analysis, selection, layer):
        raise InputError(
            f"noise cannot be added to {layer[0]} layer {layer[1]}: it needs units (found the "
            f"distance {analysis.spec.distance_of(layer[0])}), and features that are not resolved "
            "by value."
        )
    count = counting(report or (lambda _: None), "noise", "methods")
    key = _noise_key(analysis, selection, layer)
    return NOISE_STAGE.get(store, key, lambda: _noisy(analysis, store, selection, layer, count))


def _noisy(
    analysis: Analysis, store: Store, selection: Selection, layer: Layer, count: Counted
) -> pd.DataFrame:
    model, number = layer
    spec, folds = analysis.spec, analysis.folds
    rows = np.asarray(representations_of(analysis, model, store)[number], dtype=np.float64)
    noise = np.random.default_rng(spec.seed).standard_normal(rows.shape) * rows.std(axis=0)
    chosen = analysis.stimuli.select(selection.features)
    index = PairIndex.build(feature_columns(chosen), folds, spec.missing, design=analysis.design)
    count(0, len(COMPARED))
    tables = pair_tables(
        index,
        [lambda level=level: rows + level * noise for level in NOISE_LEVELS],  # type: ignore[misc]
        names=[f"{model} layer {number} with noise {level:g}" for level in NOISE_LEVELS],
        distance=spec.distance_of(model),
        train_ranks=True,
    ).with_interactions(selection.interactions)
    # The levels stand in the place of layers.
    levels, found = [(model, at) for at in range(len(NOISE_LEVELS))], []
    for done, name in enumerate(COMPARED, 1):
        found.append(results_from_tables(tables, levels, np.eye(len(levels)), folds, name))
        count(done, len(COMPARED))
    table = agreement_by_layer(found[0], found[1])
    table["noise"] = np.array(NOISE_LEVELS)[table["layer"].to_numpy()]
    return table[["noise", "fold", "frobenius", "tau"]]


def _noise_key(analysis: Analysis, selection: Selection, layer: Layer) -> dict[str, Any]:
    return analysis.key(replace(selection, layers=(layer,), estimator=""), levels=NOISE_LEVELS)
