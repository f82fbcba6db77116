"""Folds of the stimuli that keep groups together."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray


def group_folds(groups: IntArray, cv: Any, random_state: Any) -> IntArray:
    """Divide stimuli into folds so that no group is split.

    Parameters
    ----------
    groups : (n_stimuli,) group (sentence) of each stimulus
    cv : number of folds, or a scikit-learn splitter, which is given the groups
    random_state : of the folds where `cv` is a number

    Returns
    -------
    (n_stimuli,) the fold that tests each stimulus

    Raises
    ------
    InputError
        Fewer groups than folds, a splitter that does not test each stimulus once, or a fold with
        fewer than 3 stimuli (and so fewer than 3 pairs).
    """
    from sklearn.model_selection import GroupKFold, check_cv

    n_groups = len(np.unique(groups))
    if isinstance(cv, int | np.integer):
        if cv < 2 or n_groups < cv:
            raise InputError(
                f"found {cv} folds for {n_groups} sentences; the number of folds must be between "
                f"2 and the number of sentences."
            )
        cv = GroupKFold(cv, shuffle=True, random_state=random_state)
    folds, times = np.zeros((2, len(groups)), dtype=np.int64)
    for fold, (_, test) in enumerate(check_cv(cv).split(groups, groups=groups)):
        folds[test] = fold
        times[test] += 1
    if (times != 1).any():
        raise InputError(
            f"the splitter {cv} tests {np.count_nonzero(times != 1)} of {len(groups)} stimuli not "
            "exactly once; choose one whose test sets share out the stimuli, such as GroupKFold."
        )
    sizes = np.bincount(folds)
    if sizes.min() < 3:
        raise InputError(
            f"{len(groups)} stimuli in {n_groups} sentences leave a fold with {sizes.min()} of "
            f"them; each of the {len(sizes)} folds needs at least 3, so choose fewer folds or add "
            "stimuli."
        )
    return folds
