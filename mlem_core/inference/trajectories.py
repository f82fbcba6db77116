"""What an analysis says of trajectories over training: tables, and sentences on what varies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.text import listed, many
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.layer_scores import layer_scores, scores_left
from mlem_core.inference.populations import Left, profile_interval
from mlem_core.measures.trajectories import COLUMNS, Checkpoints, over_steps
from mlem_core.models.checkpoints import is_control, run_of, step_of, trajectories_of
from mlem_core.pairs.resampling_units import Units

FILE = "trajectories.csv"


@dataclass(frozen=True)
class Trained:
    """What is known of the trajectories of an analysis.

    Attributes
    ----------
    members : of each trajectory that is shown
    table : of `mlem_core.measures.trajectories.over_steps`, one trajectory below the other
    over : what the intervals are over, such as "seeds, and sentences"
    """

    members: tuple[tuple[str, tuple[str, ...]], ...]
    table: pd.DataFrame
    over: str

    def lines(self) -> list[str]:
        """What varies in each trajectory, in sentences."""
        return [_line(name, members, self.over) for name, members in self.members]

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table of the command line and the capsule, by its file name."""
        return {FILE: self.table}


def _line(name: str, members: tuple[str, ...], over: str) -> str:
    steps = sorted({step_of(one) for one in members})
    trained = [one for one in members if not is_control(one)]
    runs = list(dict.fromkeys(map(run_of, trained)))
    at = {step: [one for one in trained if step_of(one) == step] for step in steps}
    of_runs = {frozenset(map(run_of, own)) for own in at.values() if own}
    sizes = [sum(step_of(one) == step for one in members) for step in steps]
    what = f"Trajectory {name}: {len(steps)} steps of training ({steps[0]:,} to {steps[-1]:,})"
    seeds = many(sizes[0], "seed") if len({*sizes}) == 1 else f"{min(sizes)} to {max(sizes)} seeds"
    where = "" if len({*sizes}) == 1 else ", where there are two"
    intervals = "there are no intervals"
    if max(sizes) > 1:
        intervals = f"95 % intervals are over {over}{where}"
    if len(of_runs) > 1:
        said = (
            f", {seeds} a step, not the same at each: what changes from step to step may be which "
            f"seeds are there ({intervals})"
        )
    elif max(sizes) == 1:
        said = f", one run ({', '.join(runs)}), which says nothing of other runs"
    else:
        said = f", {seeds} a step ({listed(runs)}); {intervals}, and speak of other seeds of it"
    if any(map(is_control, members)):
        said += "; random weights, as training would begin from, stand at step 0"
    return f"{what}{said}."


def trajectories(
    analysis: Analysis,
    results: Results,
    selection: Selection | None = None,
    *,
    bounds: LayerIntervals | None = None,
) -> Trained:
    """What is known of the trajectories over training.

    Parameters
    ----------
    results : of the selection
    bounds : of the same layers and features, for the spread over stimuli; None: intervals are over
        seeds alone

    Returns
    -------
    of those trajectories that have two steps in the selection
    """
    selection = analysis.select() if selection is None else selection
    models = list(dict.fromkeys(model for model, _ in selection.layers))
    shown = trajectories_of(analysis.spec.trajectories, models)
    values, columns = layer_scores(results, selection)
    without = scores_left(bounds, selection, columns)
    tables = [pd.DataFrame(columns=list(COLUMNS))] if not shown else []
    for name, members in shown:
        places = np.array([i for i, (model, _) in enumerate(selection.layers) if model in members])
        own = Checkpoints.of(
            name,
            [(one, step_of(one)) for one in members],
            [selection.layers[place] for place in places],
        )
        rows = own.rows(values[places])
        left = None
        if without is not None:
            left = np.stack([own.rows(one[places]) for one in without.without])

        def reach(
            at: IntArray, rows: FloatArray = rows, left: FloatArray | None = left
        ) -> FloatArray:
            stimuli = None
            if left is not None and without is not None:
                stimuli = Left(left[:, at], without.sizes)
            around = profile_interval(rows[at], stimuli)
            half: FloatArray = (around.upper - around.lower) / 2
            return half

        tables.append(over_steps(own, values[places], columns, reach))
    over = "seeds" if without is None else f"seeds, and {Units.of(analysis.stimuli).over}"
    return Trained(shown, pd.concat(tables, ignore_index=True), over)
