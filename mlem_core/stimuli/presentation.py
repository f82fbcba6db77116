"""Presentation of stimuli in time: sessions, runs and blocks, and the order in them.

What is near in time is alike, whatever the stimuli are: signals drift, and so does attention.
Neighbours are then no independent observations. So folds are whole runs or blocks of neighbours,
blocks are left out for intervals, and chance moves whole blocks or shifts labels within a run.

The table says when a stimulus was presented, in columns of these names (`mlem_core.stimuli.roles`
gives them to a user's columns). Without a column of numbers or time stamps, the order is that of
the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.stimulus_set import (
    BLOCK,
    ORDER,
    PRESENTED,
    RUN,
    SESSION,
    StimulusSet,
    sentence_ids,
)

# Seconds of the units of time that a lag may have.
_SECONDS = {"s": 1.0, "ms": 0.001, "min": 60.0}
_LAG = re.compile(r"(\d+(?:\.\d+)?)\s*(s|ms|min|)")
# A feature that keeps its value for so many stimuli on average is one of a block design.
LASTING = 4
# Without blocks in the table, the stimuli of all runs are in about so many.
BLOCKS = 12


def presented_cells(cells: Sequence[str | None], column: str, role: str) -> list[str | None]:
    """The cells of a column of this module, checked; of the order its numbers, or seconds.

    Raises InputError: an empty cell; an order that is neither a number nor a time stamp.
    """
    series = pd.Series([(cell or "").strip() or None for cell in cells], dtype=object)
    what = "a value in every row"
    if role == "order":
        what = "a number or a time stamp in every row"
        numbers = pd.to_numeric(series, errors="coerce")
        if numbers.notna().mean() < 0.5:
            stamps = pd.to_datetime(series, errors="coerce", format="mixed")
            numbers = (stamps - stamps.min()).dt.total_seconds()
        texts = numbers.map(repr, na_action="ignore")
    else:
        texts = series
    if texts.isna().any():
        row = int(texts.isna().argmax())
        raise InputError(
            f"row {row + 1} of the column {column!r} has {short(cells[row] or '')}; expected "
            f"{what}, as its role is {role}."
        )
    return list(texts)


def are_in_time(stimuli: StimulusSet) -> bool:
    """Whether the table says when stimuli came."""
    return any(name in stimuli.table for name in (*PRESENTED, ORDER))


def presentation_runs(stimuli: StimulusSet) -> IntArray:
    """(n_stimuli,) the run of each stimulus, from 0; without runs they are all of one."""
    names = [name for name in (SESSION, RUN) if name in stimuli.table]
    if not names:
        return np.zeros(len(stimuli), dtype=np.int64)
    return np.asarray(stimuli.table.groupby(names, sort=False).ngroup(), dtype=np.int64)


def presentation_times(stimuli: StimulusSet) -> FloatArray:
    """(n_stimuli,) when each stimulus came: as the table says, else the number of its row."""
    if ORDER in stimuli.table:
        return stimuli.table[ORDER].to_numpy(dtype=np.float64)
    return np.arange(len(stimuli), dtype=np.float64)


def presentation_order(stimuli: StimulusSet) -> IntArray:
    """(n_stimuli,) row numbers in the order of presentation, one run after the other."""
    return np.lexsort((presentation_times(stimuli), presentation_runs(stimuli)))


def parse_lag(text: str) -> str:
    """A lag such as "10" or "8s", without spaces; "" and "0" are none. InputError for another."""
    match = _LAG.fullmatch(text.strip())
    if text.strip() and match is None:
        raise InputError(
            f"found the lag {short(text)}; expected a number of stimuli such as 10, or a time such "
            "as 8s, 500ms or 1min."
        )
    return "".join(match.groups()) if match and float(match[1]) else ""


def times_in_lags(stimuli: StimulusSet, lag: str) -> FloatArray | None:
    """(n_stimuli,) when each stimulus came, in lags; two of different runs are further than one.

    Parameters
    ----------
    lag : of `parse_lag`; None is returned where it is ""

    Raises InputError: a lag of time, where the stimuli have no order.
    """
    match = _LAG.fullmatch(lag)
    if match is None:
        return None
    length, unit = float(match[1]), match[2]
    runs = presentation_runs(stimuli)
    if unit:
        if ORDER not in stimuli.table:
            raise InputError(
                f"found the lag {lag}, but no column of {stimuli.name} says when a stimulus came; "
                "give one the role order, or a lag in stimuli, such as 10."
            )
        times = presentation_times(stimuli) / (length * _SECONDS[unit])
    else:
        times = np.empty(len(stimuli))
        times[presentation_order(stimuli)] = np.arange(len(stimuli)) / length
    span = float(times.max() - times.min())
    return times + runs * (span + 2.0)


def with_blocks(stimuli: StimulusSet, length: int = 0) -> StimulusSet:
    """Stimuli in blocks of neighbours, which stay together in folds and are drawn together.

    A block is of one run, and the last one of a run takes what is left. It begins where features
    change that last for several stimuli, as those of a block design do, if that is nearby. Stimuli
    of one sentence (or `sentence_id`) that stand in one run are of one block.

    Parameters
    ----------
    length : stimuli of a block; 0 makes about `BLOCKS` blocks of all runs together

    Raises InputError: blocks of fewer than 2 stimuli, or so long that there are fewer than two.
    """
    n = len(stimuli)
    if length and not 2 <= length <= n // 2:
        raise InputError(
            f"found blocks of {length:,} stimuli for {n:,} of them; expected a length from 2 to "
            f"{n // 2:,}."
        )
    length = length or max(1, n // BLOCKS)
    runs = presentation_runs(stimuli)
    order = presentation_order(stimuli)
    sizes = np.bincount(runs)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # The first stimulus of a sentence in a run says where all of them are.
    sentences = pd.Series(place).groupby([runs, sentence_ids(stimuli.table)])
    place = sentences.transform("min").to_numpy()
    changes = order[_lasting_changes(stimuli, order)]
    blocks = np.empty(n, dtype=np.int64)
    for run, size in enumerate(sizes.tolist()):
        cuts = np.arange(1, max(size // length, 1)) * length
        at = place[changes[runs[changes] == run]]
        for number, cut in enumerate(cuts.tolist()):
            if len(at):
                nearest = int(at[np.argmin(np.abs(at - cut))])
                cuts[number] = nearest if abs(nearest - cut) <= length // 2 else cut
        in_run = runs == run
        blocks[in_run] = np.searchsorted(np.unique(cuts), place[in_run], side="right")
    return stimuli.with_groups(BLOCK, [f"{number + 1}" for number in blocks])


def _lasting_changes(stimuli: StimulusSet, order: IntArray) -> IntArray:
    """Places in an order where a feature changes that lasts for `LASTING` stimuli on average."""
    changes = np.zeros(len(order), dtype=bool)
    for feature in stimuli.features:
        codes = pd.factorize(stimuli.table[feature.name].to_numpy()[order])[0]
        is_new = np.diff(codes, prepend=codes[:1]) != 0
        if LASTING * is_new.sum() <= len(order):
            changes |= is_new
    return np.flatnonzero(changes)
