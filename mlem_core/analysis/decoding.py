"""Decoding (Jalouzot et al. 2024, appendix G): can each feature be read out of a layer?

The baseline beside importance profiles. It is tested on the stimuli that a fold leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.representations import representations_of
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, IntArray, Layer, counted
from mlem_core.data.folds import in_training
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.storage.store import Stage, Store

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.models.representations import Representations

# (model, layer) -> (n_stimuli, n_units); read one at a time, so memory-mapped arrays stay on disk.
LayerRows = Mapping[Layer, NDArray[np.floating]]

# An ordered feature with more distinct values is a quantity, not a set of classes.
MAX_LEVELS = 10
# Values of the option `--baselines`.
BASELINES = ("decoding",)


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

    Source: Jalouzot et al. 2024, appendix G.
    """
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    decoded, notices = [], []
    for column in feature_columns(stimuli):
        # -1 where the feature is missing.
        classes = pd.factorize(column.values, sort=False)[0]
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
    for (model, layer), units in layer_rows.items():
        rows = np.asarray(units, dtype=np.float64)
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


def decode_layers(
    analysis: Analysis,
    store: Store,
    layers: Sequence[Layer] | None = None,
    progress: Counted | None = None,
) -> Baseline:
    """Decoding on the stimuli, features and folds of an analysis; each layer is kept in `store`.

    Parameters
    ----------
    layers : of the analysis; None is all
    progress : called with the number of layers done and their total

    Raises InputError: representations that are no longer in the store; precomputed distances, which
    have no representations.
    """
    requested = analysis.layers if layers is None else layers
    decodable = [layer for layer in requested if analysis.spec.distance_of(layer[0]) != PRECOMPUTED]
    if not decodable:
        raise InputError(
            "decoding needs representations, but these layers have precomputed distances only."
        )
    by_layer = []
    for layer in counted(decodable, len(decodable), progress):
        source = representations_of(analysis, layer[0], store)

        def decode(layer: Layer = layer, source: Representations = source) -> Baseline:
            rows = {layer: np.asarray(source[layer[1]])}
            return decoding(analysis.stimuli, rows, analysis.folds)

        by_layer.append(STAGE.get(store, analysis.key([layer], name="decoding"), decode))
    return _joined(by_layer)


def cached_decoding(analysis: Analysis, store: Store, layers: Sequence[Layer]) -> Baseline | None:
    """Decoding if every one of these layers is in the store; computes nothing."""
    cached = [analysis.kept(STAGE, store, [layer], name="decoding") for layer in layers]
    there = [baseline for baseline in cached if baseline is not None]
    return None if len(there) < len(cached) else _joined(there)


def _joined(by_layer: Sequence[Baseline]) -> Baseline:
    notices = dict.fromkeys(notice for one in by_layer for notice in one.notices)
    table = pd.concat([one.table for one in by_layer], ignore_index=True)
    return Baseline(table, tuple(notices))
