"""Folds of the stimuli that keep groups together: sentences, or the items that recur in them.

Folds over sentences ask whether what was learnt holds of other sentences; the words in them may
have been seen in training. Folds over items ask whether it holds of other words; their sentences
may have been seen. Of both at once there are no folds that test each stimulus, as nearly all
stimuli hang together by a shared sentence or word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray
from mlem_core.data.stimuli import StimulusSet

FOLDS_OVER = ("sentences", "items")


def fold_groups(stimuli: StimulusSet, over: str) -> IntArray:
    """What stays together in every split: (n_stimuli,) group, or item, of each stimulus.

    Raises
    ------
    InputError
        Folds over items of stimuli none of whose items recurs.
    """
    if over == "sentences":
        return stimuli.groups
    if stimuli.items is None:
        raise InputError(
            f"no word or item of {stimuli.name} is in two sentences, so that folds cannot be over "
            "items; the only choice is sentences."
        )
    return stimuli.items


def group_folds(groups: IntArray, cv: Any, random_state: Any, what: str = "sentences") -> IntArray:
    """Divide stimuli into folds so that no group is split.

    Parameters
    ----------
    groups : (n_stimuli,) group of each stimulus, see `fold_groups`
    cv : number of folds, or a scikit-learn splitter, which is given the groups
    random_state : of the folds where `cv` is a number
    what : what messages call the groups

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
                f"found {cv} folds for {n_groups} {what}; the number of folds must be between "
                f"2 and the number of {what}."
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
            f"{len(groups)} stimuli in {n_groups} {what} leave a fold with {sizes.min()} of "
            f"them; each of the {len(sizes)} folds needs at least 3, so choose fewer folds or add "
            "stimuli."
        )
    return folds
