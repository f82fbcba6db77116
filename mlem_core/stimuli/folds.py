"""Folds of the stimuli that keep groups together: sentences, the items that recur in them, or both.

Folds over sentences ask whether what was learnt holds of other sentences; the words in them may
have been seen in training. Folds over items ask whether it holds of other words; their sentences
may have been seen. Folds over both ask whether it holds of other sentences made of other words.

For these, sentences and items are each divided into folds. Fold k tests the stimuli whose sentence
and item are both of fold k, and trains without every stimulus whose sentence or item is. A stimulus
whose sentence is of one fold and its item of another is tested by none: it stands *between* the two
and helps to train where neither is tested. With folds over items or both a pair of one item tests
no fold (`untested_items`). Nearly all stimuli hang together by a shared sentence or
word, so there are no such folds that test each.

In arrays of folds (n_stimuli,), 0 to n_folds - 1 is the fold that tests a stimulus, and a number
below 0 says between which two folds it stands, see `fold_pairs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import many, plural, some
from mlem_core.base.typing import IntArray
from mlem_core.stimuli.columns import parse_number
from mlem_core.stimuli.presentation import are_in_time, presentation_order, presentation_runs
from mlem_core.stimuli.stimulus_set import SPLIT, StimulusSet, group_name

FOLDS_OVER = ("sentences", "items", "both")
# Fold k of n over both tests one stimulus in n², and there are about n⁴ / 24 blocks of pairs.
MOST_OVER_BOTH = 10
# So that a fold has 3 pairs.
FEWEST_TESTED = 3
# One to test, one to choose α, one to fit.
FEWEST_FOLDS = 3


def stimulus_folds(stimuli: StimulusSet, over: str, n_folds: int, seed: int) -> IntArray:
    """The fold that tests each stimulus (n_stimuli,); over both, see the module.

    Parameters
    ----------
    over : one of `FOLDS_OVER`; "both" divides sentences as "sentences" does, and items as "items"

    Raises InputError: as `fold_groups` and `group_folds`; folds over both where one tests fewer
    than 3 sentences or items, or more than `MOST_OVER_BOTH` of them.
    """
    called, group = folds_over(stimuli, "sentences"), group_name(stimuli)
    if SPLIT in stimuli.table:
        return _given_folds(stimuli, n_folds, seed)
    if over == "sentences" and are_in_time(stimuli):
        return _contiguous_folds(stimuli, n_folds, seed)
    if over != "both":
        return group_folds(fold_groups(stimuli, over), n_folds, seed, folds_over(stimuli, over))
    if n_folds > MOST_OVER_BOTH:
        raise InputError(
            f"found {n_folds} folds over both {called} and items; each would test one "
            f"stimulus in {n_folds**2}; choose at most {MOST_OVER_BOTH}, or folds over {called} "
            "or items."
        )
    groups, items = stimuli.groups, fold_groups(stimuli, "items")
    of_item = group_folds(items, n_folds, seed, "items")
    of_sentence = group_folds(groups, n_folds, seed, called)
    low, high = np.minimum(of_sentence, of_item), np.maximum(of_sentence, of_item)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    for fold in range(n_folds):
        n_sentences, n_items = (len(np.unique(of[folds == fold])) for of in (groups, items))
        if min(n_sentences, n_items) < FEWEST_TESTED:
            raise InputError(
                f"fold {fold} of {n_folds} over both {called} and items tests "
                f"{many(n_items, 'item')} in {many(n_sentences, group)}; each needs at "
                f"least {FEWEST_TESTED} of both, so choose fewer folds, or folds over {called} or "
                "items."
            )
    return folds


def _contiguous_folds(stimuli: StimulusSet, n_folds: int, seed: int) -> IntArray:
    """Folds of whole runs where there are as many, else of neighbouring blocks."""
    runs = presentation_runs(stimuli)
    has_enough = most_folds(runs, None) >= n_folds
    units = runs if has_enough else stimuli.groups
    # Numbered in the order of presentation.
    order = presentation_order(stimuli)
    in_order = np.empty(len(units), dtype=np.int64)
    in_order[order] = pd.factorize(units[order])[0]
    what = "runs" if has_enough else folds_over(stimuli, "sentences")
    return group_folds(in_order, n_folds, seed, what, shuffle=False)


def _given_folds(stimuli: StimulusSet, n_folds: int, seed: int) -> IntArray:
    """Folds that a column gives: a fold a value, by number or name; of train and test, test is 0.

    What trains is then divided into the other folds.

    Raises InputError: fewer than `FEWEST_FOLDS` folds, unless they are train and test; a fold with
    fewer than `FEWEST_TESTED` stimuli; one of two folds in a group that stays together.
    """
    cells = stimuli.table[SPLIT].astype(str)
    values = sorted(cells.unique(), key=lambda value: (parse_number(value) or 0.0, value))
    if {value.casefold() for value in values} == {"test", "train"}:
        is_test = cells.str.casefold().to_numpy() == "test"
        folds = np.zeros(len(stimuli), dtype=np.int64)
        trains = stimuli.groups[~is_test]
        folds[~is_test] = 1 + group_folds(
            trains, n_folds - 1, seed, folds_over(stimuli, "sentences")
        )
    else:
        folds = cells.map(values.index).to_numpy(dtype=np.int64)
    sizes = np.bincount(folds)
    if len(sizes) < FEWEST_FOLDS or sizes.min() < FEWEST_TESTED:
        raise InputError(
            f"the folds that {stimuli.name} gives are {some(values)}, of {sizes.min():,} to "
            f"{sizes.max():,} stimuli; expected at least {FEWEST_FOLDS} folds of "
            f"{FEWEST_TESTED} stimuli, or train and test."
        )
    parts = np.unique(np.column_stack((stimuli.groups, folds)), axis=0)[:, 0]
    if len(parts) > len(np.unique(parts)):
        split = parts[np.flatnonzero(np.diff(parts) == 0)[0]]
        row = int(np.flatnonzero(stimuli.groups == split)[0]) + 1
        raise InputError(
            f"the {group_name(stimuli)} of row {row} is in two of the folds that {stimuli.name} "
            "gives; stimuli of one stay together, so give all of them one fold, or a column with "
            "the role sentence_id in which they differ."
        )
    return folds


def folds_over(stimuli: StimulusSet, over: str) -> str:
    """What folds are over, in words; groups of stimuli are called as those of the stimuli are."""
    return plural(group_name(stimuli)) if over == "sentences" else over


def tested(folds: IntArray, n_folds: int) -> IntArray:
    """Number of stimuli that each fold tests (n_folds,), by the fold of each (n_stimuli,)."""
    return np.bincount(folds[folds >= 0], minlength=n_folds)


def number_of_folds(folds: IntArray) -> int:
    """Number of folds by the fold of each stimulus (n_stimuli,), see the module."""
    return int(fold_pairs(folds).max()) + 1


def fold_pairs(folds: IntArray) -> IntArray:
    """The folds that leave each stimulus out in training: (n_stimuli, 2).

    Twice the fold that tests it, or the two folds a < b between which it stands, whose number in
    an array of folds is -1 - (b (b - 1) / 2 + a).
    """
    number = np.maximum(-1 - folds, 0)
    high = ((1 + np.sqrt(1 + 8 * number)) // 2).astype(np.int64)
    between = np.stack((number - high * (high - 1) // 2, high), axis=-1)
    return np.where((folds < 0)[:, None], between, folds[:, None])


def is_training(folds: IntArray, fold: int) -> NDArray[np.bool_]:
    """(n_stimuli,) whether each stimulus trains the model that a fold tests."""
    return (fold_pairs(folds) != fold).all(axis=1)


def fold_groups(stimuli: StimulusSet, over: str) -> IntArray:
    """The group, or the item, of each stimulus that stays together in every split: (n_stimuli,).

    Raises InputError: folds over items of stimuli none of whose items recurs.
    """
    if over == "sentences":
        return stimuli.groups
    if stimuli.items is None:
        raise InputError(
            f"no {'word or ' * (stimuli.level != 'stimulus')}item of {stimuli.name} is in two "
            f"{folds_over(stimuli, 'sentences')}, so that folds cannot be over items; the only "
            "choice is sentences."
        )
    return stimuli.items


def kept_together(folds: IntArray, groups: IntArray, items: IntArray | None) -> IntArray:
    """The group, or the item, of each stimulus that stays together in given folds: (n_stimuli,).

    With folds over both it is the stimuli of an item whose sentences are of the same fold.

    Parameters
    ----------
    folds, groups, items : (n_stimuli,) of each stimulus; items are None where none recurs
    """
    if items is None:
        return groups
    if (folds < 0).any():
        return np.unique(np.column_stack((items, folds)), axis=0, return_inverse=True)[1].ravel()
    is_nested = len(np.unique(np.column_stack((groups, folds)), axis=0)) == len(np.unique(groups))
    return groups if is_nested else items


def untested_items(folds: IntArray, groups: IntArray, items: IntArray | None) -> IntArray | None:
    """The items (n_stimuli,) that test no fold with two stimuli; None with folds over sentences.

    Two stimuli of one item are near each other whatever was learnt, so they say nothing of other
    items.

    Parameters
    ----------
    folds, groups, items : as in `kept_together`
    """
    return None if kept_together(folds, groups, items) is groups else items


def _generator(random_state: Any) -> Any:
    """A generator that shuffles as scikit-learn's does, so that a seed means the same folds."""
    is_seed = isinstance(random_state, int | np.integer) and 0 <= random_state < 2**32
    if random_state is None or is_seed:
        return np.random.RandomState(random_state)
    if not hasattr(random_state, "permutation"):
        raise InputError(
            f"the random state {random_state!r} is no seed; expected a whole number from 0 to "
            f"{2**32 - 1:,}, None or a generator."
        )
    return random_state


def most_folds(groups: IntArray, random_state: Any) -> int:
    """The largest number of folds of these groups that each test enough stimuli; 0 for none."""
    sizes = np.unique(groups, return_counts=True)[1]
    if isinstance(random_state, int | np.integer):
        sizes = sizes[_generator(random_state).permutation(len(sizes))]
    for n_folds in range(min(len(sizes), len(groups) // FEWEST_TESTED), FEWEST_FOLDS - 1, -1):
        if min(part.sum() for part in np.array_split(sizes, n_folds)) >= FEWEST_TESTED:
            return n_folds
    return 0


def _would_do(groups: IntArray, random_state: Any, what: str) -> str:
    """Advice with the numbers of folds that these groups allow."""
    most = most_folds(groups, random_state)
    if not most:
        return f"add {what}, so that there can be {FEWEST_FOLDS} folds of {FEWEST_TESTED} stimuli"
    numbers = f"{FEWEST_FOLDS}" if most == FEWEST_FOLDS else f"{FEWEST_FOLDS} to {most}"
    return f"choose {numbers} folds, or add {what}"


def group_folds(
    groups: IntArray,
    cv: Any,
    random_state: Any,
    what: str = "sentences",
    *,
    shuffle: bool = True,
) -> IntArray:
    """Divide stimuli into folds so that no group is split.

    Parameters
    ----------
    groups : (n_stimuli,) group of each stimulus, see `fold_groups`
    cv : number of folds, or a scikit-learn splitter, which is given the groups
    random_state : of the folds where `cv` is a number
    what : what messages call the groups
    shuffle : False puts groups of neighbouring numbers into a fold

    Returns (n_stimuli,) the fold that tests each stimulus

    Raises InputError: fewer groups than folds; neither a number of folds nor a splitter of these
    stimuli; one that does not test each stimulus once; a fold with fewer than 3 stimuli (and so
    fewer than 3 pairs); no seed.
    """
    n_groups = len(np.unique(groups))
    if isinstance(cv, int | np.integer):
        if cv < 2 or n_groups < cv:
            raise InputError(
                f"found {cv} folds for {n_groups} {what}; {_would_do(groups, random_state, what)}."
            )
        # As scikit-learn's shuffled `GroupKFold` has them.
        n_folds = int(cv)
        names, group_of = np.unique(groups, return_inverse=True)
        order = np.arange(len(names))
        if shuffle:
            order = _generator(random_state).permutation(len(names))
        tests = [np.flatnonzero(np.isin(group_of, part)) for part in np.array_split(order, n_folds)]
    else:
        from sklearn.model_selection import check_cv

        rows = np.arange(len(groups))
        try:
            tests = [rows[test] for _, test in check_cv(cv).split(groups, groups=groups)]
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"cv is {cv!r}, which cannot divide {len(groups)} stimuli ({error}); expected a "
                "number of folds or a scikit-learn splitter."
            ) from None
    folds, times = np.zeros((2, len(groups)), dtype=np.int64)
    for fold, test in enumerate(tests):
        folds[test] = fold
        times[test] += 1
    if (times != 1).any():
        raise InputError(
            f"the splitter {cv} tests {np.count_nonzero(times != 1)} of {len(groups)} stimuli not "
            "exactly once; choose one whose test sets share out the stimuli, such as GroupKFold."
        )
    sizes = np.bincount(folds)
    if sizes.min() < FEWEST_TESTED:
        raise InputError(
            f"{len(groups)} stimuli in {n_groups} {what} leave a fold with {sizes.min()} of "
            f"them; each of the {len(sizes)} folds needs at least {FEWEST_TESTED}, so "
            f"{_would_do(groups, random_state, what)}."
        )
    return folds
