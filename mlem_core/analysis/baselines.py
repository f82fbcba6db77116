"""The baselines of Jalouzot et al. 2024, to put beside importance profiles.

Decoding asks whether a feature can be read out, a random forest predicts the representations from
the features, and univariate fits explain one unit at a time. All are tested on the stimuli that a
fold leaves out, and give tidy tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Selection
from mlem_core.analysis.representations import representations_of
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer
from mlem_core.data.folds import in_training, untested_items
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import FeatureColumn, feature_columns, principal_coordinates
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rows import equal_rows
from mlem_core.storage.store import Stage, Store

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.models.representations import Representations

# (model, layer) -> (n_stimuli, n_units); read one at a time, so memory-mapped arrays stay on disk.
LayerRows = Mapping[Layer, NDArray[np.floating]]

# An ordered feature with more distinct values is a quantity, not a set of classes.
MAX_LEVELS = 10
# Of a feature that is given by its distances, for the forest.
MOST_COORDINATES = 20
# Units whose pairs are ranked before the next ones are read.
UNITS_AT_ONCE = 32
BASELINES = ("decoding", "random-forest", "univariate")


@dataclass(frozen=True)
class Baseline:
    """Table and notices of a baseline on some layers.

    Attributes
    ----------
    table : tidy, with columns model, layer and fold
    notices : sentences about what was left out and why
    """

    table: pd.DataFrame
    notices: tuple[str, ...]


STAGE = Stage("baseline", 2, Baseline)


def _checked(layer_rows: LayerRows, folds: IntArray) -> Iterator[tuple[Layer, FloatArray]]:
    for (model, layer), rows in layer_rows.items():
        if len(rows) != len(folds):
            raise InputError(
                f"layer {layer} of {model} has {len(rows)} rows, but there are {len(folds)} "
                "stimuli; it must have one row a stimulus."
            )
        exact = np.asarray(rows, dtype=np.float64)
        if not np.isfinite(exact).all():
            raise InputError(
                f"layer {layer} of {model} holds values that are no finite numbers; each must be "
                "one."
            )
        yield (model, layer), exact


def _classes(column: FeatureColumn) -> IntArray:
    """(n_stimuli,) the class of each stimulus, -1 where the feature is missing."""
    return pd.factorize(column.values, sort=False)[0].astype(np.int64)


def decoding(
    stimuli: StimulusSet | pd.DataFrame, layer_rows: LayerRows, folds: IntArray
) -> Baseline:
    """Accuracy of a linear classifier for each feature, layer and fold.

    The classifier sees the units standardised (by its training stimuli) and none of the stimuli
    whose feature is missing. An ordered feature is decoded as its distinct values; one with more
    than `MAX_LEVELS` of them is left out, with a notice. It is scikit-learn's `RidgeClassifier()`,
    which on the probing set is mostly within 3 points of accuracy of `LogisticRegression` and 10 to
    100 times faster (every class of a feature shares one factorisation).

    Parameters
    ----------
    stimuli : the features of n_stimuli stimuli
    layer_rows : (model, layer) to representations (n_stimuli, n_units)
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.data.folds`; those of an
        analysis keep together what its metric models are not to have seen

    Returns a `Baseline`, whose `majority` is the accuracy of always saying the most frequent
    training level. A fold in which no stimulus has the feature has no row.

    Raises InputError: a layer without one row a stimulus, or with values that are not finite.

    Source: Jalouzot et al. 2024, appendix G.
    """
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    decoded, notices = [], []
    for column in feature_columns(stimuli):
        classes = _classes(column)
        n_levels, why = int(classes.max(initial=-1)) + 1, ""
        if column.rdm is not None:
            why = "it is given by the distances of its values, and has no levels"
        elif column.kind == "ordered" and n_levels > MAX_LEVELS:
            why = f"it has {n_levels} distinct values, and ordered features are decoded up to "
            why += f"{MAX_LEVELS}"
        elif n_levels < 2:
            why = "it has one level"
        if why:
            notices.append(f"The feature {column.name!r} was not decoded: {why}.")
        else:
            decoded.append((column.name, classes))
    scores = []
    for (model, layer), rows in _checked(layer_rows, folds):
        for fold in range(int(folds.max()) + 1):
            for name, classes in decoded:
                train = in_training(folds, fold) & (classes >= 0)
                test = (folds == fold) & (classes >= 0)
                if not train.any() or not test.any():
                    continue
                majority = float(np.mean(classes[test] == np.bincount(classes[train]).argmax()))
                accuracy = majority
                if len(np.unique(classes[train])) > 1:
                    fitted = make_pipeline(StandardScaler(), RidgeClassifier())
                    fitted.fit(rows[train], classes[train])
                    accuracy = float(fitted.score(rows[test], classes[test]))
                scores.append((model, layer, fold, name, accuracy, majority))
    names = ["model", "layer", "fold", "feature", "accuracy", "majority"]
    return Baseline(pd.DataFrame(scores, columns=names), tuple(notices))


def encoded_features(stimuli: StimulusSet | pd.DataFrame) -> tuple[FloatArray, tuple[str, ...]]:
    """Features as numbers: nominal ones one-hot, ordered ones scaled to [0, 1].

    A missing nominal value is a row of zeros; a missing ordered one is -1, apart from all values.
    Of a feature that is given by its distances the first `MOST_COORDINATES` principal coordinates
    (Gower 1966) are taken, of a vector its principal components; a missing value is at their mean.

    Returns (n_stimuli, n_inputs) and, for each input, the feature that it belongs to.
    """
    parts, names = [], []
    for column in feature_columns(stimuli):
        if column.kind == "ordered":
            low, high = column.span
            scaled = (column.values.astype(np.float64) - low) / (high - low if high > low else 1.0)
            part = np.nan_to_num(scaled, nan=-1.0)[:, None]
        elif column.rdm is not None:
            part = principal_coordinates(column, MOST_COORDINATES)
        else:
            classes = _classes(column)
            part = (classes[:, None] == np.arange(classes.max(initial=0) + 1)).astype(np.float64)
        parts.append(part)
        names += [column.name] * part.shape[1]
    return np.concatenate(parts, axis=1), tuple(names)


def random_forest(
    stimuli: StimulusSet | pd.DataFrame,
    layer_rows: LayerRows,
    folds: IntArray,
    *,
    repeats: int = 10,
    seed: int = 0,
    **forest: Any,
) -> pd.DataFrame:
    """Permutation importances of a forest that predicts all units of a layer from the features.

    The paper does not say what its importances are a drop of. Here it is Spearman's ρ between the
    Euclidean distances of every two predicted and of every two true representations of the
    left-out stimuli, so that they can be put beside those of a metric. A feature is permuted over
    the left-out stimuli, all its inputs together.

    Parameters
    ----------
    stimuli, layer_rows, folds : as in `decoding`; inputs are the `encoded_features`
    repeats : permutations a feature, whose drops are averaged
    seed : of the forest and the permutations
    forest : arguments of scikit-learn's `RandomForestRegressor`

    Returns model, layer, fold, feature, importance, rho (of the fold, nothing permuted).

    Raises as `decoding`.

    Source: Jalouzot et al. 2024, appendix H.
    """
    from scipy.stats import rankdata
    from sklearn.ensemble import RandomForestRegressor

    inputs, owners = encoded_features(stimuli)
    features = tuple(dict.fromkeys(owners))

    def centred_ranks(rows: FloatArray) -> FloatArray:
        ranks: FloatArray = rankdata(squared_distances(rows))
        ranks -= ranks.mean()
        return ranks

    def score(fitted: RandomForestRegressor, inputs: FloatArray, true: FloatArray) -> float:
        # A permutation repeats most rows: each different one goes through the trees once.
        distinct, again = np.unique(inputs, axis=0, return_inverse=True)
        rows = fitted.predict(distinct).reshape(len(distinct), -1)
        predicted = centred_ranks(rows[again])
        norm = np.sqrt((true @ true) * (predicted @ predicted))
        return float(true @ predicted / norm) if norm > 0 else 0.0

    importances = []
    for (model, layer), rows in _checked(layer_rows, folds):
        for fold in range(int(folds.max()) + 1):
            train, test = in_training(folds, fold), folds == fold
            fitted = RandomForestRegressor(random_state=seed, **forest)
            fitted.fit(inputs[train], rows[train])
            true = centred_ranks(rows[test])

            whole = score(fitted, inputs[test], true)
            rng = np.random.default_rng([seed, fold])
            for name in features:
                its_inputs = np.flatnonzero(np.array(owners) == name)
                drops = []
                for _ in range(repeats):
                    permuted = inputs[test]
                    order = rng.permutation(len(permuted))
                    permuted[:, its_inputs] = permuted[order][:, its_inputs]
                    drops.append(whole - score(fitted, permuted, true))
                importances.append((model, layer, fold, name, float(np.mean(drops)), whole))
    names = ["model", "layer", "fold", "feature", "importance", "rho"]
    return pd.DataFrame(importances, columns=names)


def univariate(
    stimuli: StimulusSet | pd.DataFrame,
    layer_rows: LayerRows,
    folds: IntArray,
    *,
    missing: str = "ignore",
    values: Sequence[str] = (),
) -> pd.DataFrame:
    """Held-out ρ of a metric fitted to the distances |x_i - x_j| of each unit alone.

    A unit whose distances are all 0 has ρ = 0.

    Parameters
    ----------
    stimuli, layer_rows, folds : as in `decoding`
    missing : see `mlem_core.pairs.patterns.PairIndex`
    values : features that are resolved by value

    Returns model, layer, unit, fold, rho.

    Raises as `decoding`; fewer than three folds.

    Source: Jalouzot et al. 2024, appendix I.
    """
    items = None
    if isinstance(stimuli, StimulusSet):
        items = untested_items(folds, stimuli.groups, stimuli.items)
    design = PairDesign.complete(len(folds), items)
    index = PairIndex.build(
        feature_columns(stimuli, resolved=values), folds, missing, design=design
    )
    scores = []
    for (model, layer), rows in _checked(layer_rows, folds):
        chosen = range(rows.shape[1])
        # What is one representation up to rounding in the layer is one in each of its units.
        rows = rows[equal_rows(np.asarray(layer_rows[model, layer]))]
        for start in range(0, len(chosen), UNITS_AT_ONCE):
            part = chosen[start : start + UNITS_AT_ONCE]
            tables = pair_tables(
                index,
                [lambda unit=unit, rows=rows: rows[:, [unit]] for unit in part],  # type: ignore[misc]
                names=[f"unit {unit} of layer {layer} of {model}" for unit in part],
            )
            rho = RidgeSolver().cross_validate(tables).rho
            scores += [
                (model, layer, unit, fold, float(rho[u, fold]))
                for u, unit in enumerate(part)
                for fold in range(index.n_folds)
            ]
    return pd.DataFrame(scores, columns=["model", "layer", "unit", "fold", "rho"])


def of_analysis(
    analysis: Analysis,
    name: str,
    store: Store,
    layers: Sequence[Layer] | None = None,
    progress: Counted | None = None,
) -> Baseline:
    """A baseline on the stimuli, features and folds of an analysis; each layer is kept in `store`.

    Parameters
    ----------
    name : one of `BASELINES`
    layers : of the analysis; None is all
    progress : called with the number of layers done and their total

    Raises InputError: an unknown baseline; representations that are no longer in the store;
    precomputed distances, which have no representations.
    """
    check_choice("baseline", name, BASELINES)
    chosen = analysis.layers if layers is None else layers
    wanted = [layer for layer in chosen if analysis.spec.distance_of(layer[0]) != PRECOMPUTED]
    if not wanted:
        raise InputError(
            f"the baseline {name} needs representations, but these layers have precomputed "
            "distances only."
        )
    parts = []
    for done, (model, number) in enumerate(wanted, 1):
        source = representations_of(analysis, model, store)

        def make(layer: Layer = (model, number), source: Representations = source) -> Baseline:
            rows = {layer: np.asarray(source[layer[1]])}
            stimuli, folds = analysis.stimuli, analysis.folds
            if name == "decoding":
                return decoding(stimuli, rows, folds)
            if name == "random-forest":
                return Baseline(random_forest(stimuli, rows, folds, n_jobs=-1), ())
            missing, values = analysis.spec.missing, analysis.tables.resolved
            return Baseline(univariate(stimuli, rows, folds, missing=missing, values=values), ())

        parts.append(STAGE.get(store, analysis.key([(model, number)], name=name), make))
        if progress is not None:
            progress(done, len(wanted))
    notices = dict.fromkeys(notice for part in parts for notice in part.notices)
    return Baseline(pd.concat([part.table for part in parts], ignore_index=True), tuple(notices))


def kept_baseline(
    analysis: Analysis, name: str, store: Store, layers: Sequence[Layer]
) -> pd.DataFrame | None:
    """The table of a baseline if every one of these layers is in the store; computes nothing."""
    kept = [analysis.kept(STAGE, store, [layer], name=name) for layer in layers]
    there = [baseline.table for baseline in kept if baseline is not None]
    return None if len(there) < len(kept) else pd.concat(there, ignore_index=True)


def with_rho(analysis: Analysis, store: Store, selection: Selection) -> dict[str, pd.DataFrame]:
    """The tables by name of those that predict distances, where they are in the store.

    They see all features of the analysis: beside a selection of some there are none.
    """
    if len(selection.features) < len(analysis.tables.features):
        return {}
    names = ("random-forest", "univariate")
    tables = {name: kept_baseline(analysis, name, store, selection.layers) for name in names}
    return {name: table for name, table in tables.items() if table is not None}
