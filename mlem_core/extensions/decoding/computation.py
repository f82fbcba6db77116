"""Decoding (Jalouzot et al. 2024, appendix G): can each feature be read out of a layer?

The baseline beside importance profiles. It is tested on the stimuli that a fold leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import IntArray, Layer
from mlem_core.pairs.columns import feature_columns
from mlem_core.stimuli.folds import is_training
from mlem_core.stimuli.stimulus_set import StimulusSet

# (model, layer) -> (n_stimuli, n_units); read one at a time, so memory-mapped arrays stay on disk.
LayerRows = Mapping[Layer, NDArray[np.floating]]

# An ordered feature with more distinct values is a quantity, not a set of classes.
MAX_LEVELS = 10


@dataclass(frozen=True)
class Decoding:
    """Table and notices of decoding on some layers.

    Attributes
    ----------
    table : tidy, with columns model, layer and fold
    notices : sentences about what was left out and why
    """

    table: pd.DataFrame
    notices: tuple[str, ...]


def decoding(
    stimuli: StimulusSet | pd.DataFrame, layer_rows: LayerRows, folds: IntArray
) -> Decoding:
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
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`;
        those of an analysis keep together what its metric models are not to have seen

    Returns a `Decoding`, whose `majority` is the accuracy of always saying the most frequent
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
                train = is_training(folds, fold) & (classes >= 0)
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
    return Decoding(pd.DataFrame(scores, columns=names), tuple(notices))
