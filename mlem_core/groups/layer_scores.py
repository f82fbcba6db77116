"""Score and importances of every layer as one array, and the same without each block of stimuli."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import FloatArray
from mlem_core.inference.intervals import LayerIntervals, Left


def layer_scores(results: Results, selection: Selection) -> tuple[FloatArray, list[str]]:
    """Held-out ρ and importances of the layers of a selection, means over folds.

    Returns
    -------
    (n_layers, 1 + n_columns), and the names of the columns: features and interactions
    """
    by = ["model", "layer"]
    means = results.importance.groupby([*by, "feature"], sort=False)["importance"].mean()
    wide, layers = means.unstack("feature", sort=False), list(selection.layers)
    rho = results.scores.groupby(by, sort=False)["rho"].mean()
    both = (rho.loc[layers].to_numpy()[:, None], wide.loc[layers].to_numpy(dtype=np.float64))
    return np.concatenate(both, axis=1), list(wide.columns)


def scores_left(
    bounds: LayerIntervals | None, selection: Selection, columns: Sequence[str]
) -> Left | None:
    """The same without each block of stimuli, (n_blocks, n_layers, 1 + n_columns).

    None where there are no intervals, or where they are of other features.
    """
    if bounds is None or list(bounds.columns) != list(columns):
        return None
    # Their second number is the ceiling.
    without = np.delete(bounds.scores_without[:, bounds.places(selection.layers)], 1, axis=-1)
    return Left(without, bounds.sizes)
