"""Folds of the stimuli that keep groups together."""

from __future__ import annotations

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray


def group_folds(groups: IntArray, n_folds: int, seed: int) -> IntArray:
    """Divide stimuli into folds so that no group is split.

    Parameters
    ----------
    groups : (n_stimuli,) group (sentence) of each stimulus

    Returns
    -------
    (n_stimuli,) the fold that tests each stimulus

    Raises
    ------
    InputError
        Fewer groups than folds, or a fold with fewer than 3 stimuli (and so fewer than 3 pairs).
    """
    from sklearn.model_selection import GroupKFold

    n_groups = len(np.unique(groups))
    if n_folds < 2 or n_groups < n_folds:
        raise InputError(
            f"found {n_folds} folds for {n_groups} sentences; the number of folds must be between "
            f"2 and the number of sentences."
        )
    folds = np.empty(len(groups), dtype=np.int64)
    splitter = GroupKFold(n_folds, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(groups, groups=groups)):
        folds[test] = fold
    smallest = int(np.bincount(folds).min())
    if smallest < 3:
        raise InputError(
            f"{len(groups)} stimuli in {n_groups} sentences leave a fold with {smallest} of them; "
            f"each of the {n_folds} folds needs at least 3, so choose fewer folds or add stimuli."
        )
    return folds
