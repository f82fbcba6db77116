"""Plan of a run: its stages, the time that each takes, and what earlier runs here taught about it.

A file of the store has, for each stage, how many times as long it took here as on one core of a
laptop, which the constants of time are of. It may be deleted at any time; a damaged one counts as
none.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path

from mlem_core.analysis.planning import (
    default_speed,
    estimate_cost,
    planned_stage,
    possible_choices,
)
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json, write_json
from mlem_core.base.progress import PlannedStage, StageTimes
from mlem_core.inference.resample import PERMUTED
from mlem_core.pairs.columns import resolved_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.pair_columns import number_of_columns
from mlem_core.representations.array_files import read_arrays
from mlem_core.representations.registry import MODELS, Shape, check_availability
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

SPEEDS = "speeds.json"
LEAST = 0.5  # seconds; shorter stages say little
RANGE = (1e-3, 1e3)  # what else is in the file is no measurement
# Seconds of one core of the stages of intervals and chance, for a pair of stimuli in a layer (of
# permuted labels in a feature, too), or for a pair of layers.
INTERVALS = {
    "fits": 7e-8,
    "distances": 7e-8,
    "sums over pairs": 1.5e-7,
    "confidence intervals of scores": 1e-7,
    "confidence intervals of RSA": 0.045,
    "permuting labels": 1.9e-7,
}


def interval_stages(
    n_stimuli: int, n_layers: int, n_features: int, speeds: Mapping[str, float]
) -> list[PlannedStage]:
    """Stages of the intervals of all layers and of chance, with the time that they take."""
    pairs, stages = n_pairs(min(n_stimuli, PERMUTED)), []
    for stage, seconds in INTERVALS.items():
        units = pairs * n_layers * (n_features if "permut" in stage else 1)
        if stage == "confidence intervals of RSA":
            units = n_layers**2
        stages.append(planned_stage(stage, None, seconds * units, speeds))
    return stages


def run_stages(
    spec: AnalysisSpec, stimuli: StimulusSet, speeds: Mapping[str, float], *, intervals: bool
) -> list[PlannedStage]:
    """Stages of the run of an analysis, with the time that they take; none where it is wrong."""
    with contextlib.suppress(InputError, OSError):
        sample = spec.kept.apply(stimuli.select(spec.features))
        columns = resolved_columns(sample, possible_choices(spec, sample)[-1].values)
        n_columns = number_of_columns(columns, spec.interactions)
        shapes = {name: _shape(name) for name in spec.models}
        n_layers = [_n_layers(spec, *file) for file in spec.representations]
        cost = estimate_cost(spec, sample, n_columns, shapes, n_layers, speeds)
        size = len(sample), cost.n_layers, len(sample.features)
        return [*cost.stages, *(interval_stages(*size, speeds) if intervals else ())]
    return []


def _shape(name: str) -> Shape | None:
    """Size of a model, as far as it is known without the network."""
    known = MODELS.get(name.partition("@")[0])
    if known is not None:
        return known.shape
    return check_availability(name).shape if Path(name).exists() else None


def _n_layers(spec: AnalysisSpec, name: str, path: str) -> int:
    """Number of layers of a file of representations."""
    there = read_arrays(Path(path), spec.file_options(name)).values()
    arrays = [array for array in there if not array.is_text]
    return sum(array.shape[0] if len(array.shape) == 3 else 1 for array in arrays)


def read_speeds(store: Store) -> dict[str, float]:
    """Seconds here for a second of one core of a laptop, by stage; none where none is known."""
    return {
        stage: float(speed)
        for stage, speed in read_json(store.root / SPEEDS).items()
        if isinstance(speed, int | float) and RANGE[0] <= speed <= RANGE[1]
    }


def learn_speeds(times: StageTimes, known: Mapping[str, float], store: Store) -> None:
    """Keep how long the stages of a finished run took, averaged with what was known before.

    A stage that was found in the store, or that was too short, leaves what was known.

    Parameters
    ----------
    times : whose plan was made by `known`
    """
    planned = {(stage.stage, stage.model): stage.seconds for stage in times.plan}
    took, expected = dict[str, float](), dict[str, float]()
    before = times.started
    for stage in sorted(times.stages, key=lambda stage: stage.seen):
        seconds, n_done = planned.get((stage.stage, stage.model), 0.0), stage.done - stage.began_at
        if stage.share >= 1 and n_done > 0 and seconds > 0:
            # What leads to a stage, such as the opening of a model, is a part of it.
            whole = (stage.seen - before) * stage.total / n_done
            took[stage.stage] = took.get(stage.stage, 0.0) + whole
            expected[stage.stage] = expected.get(stage.stage, 0.0) + seconds
        before = stage.seen
    speeds = read_speeds(store)
    for name, seconds in took.items():
        if seconds >= LEAST:
            speed = known.get(name, default_speed()) * seconds / expected[name]
            speed = math.sqrt(speed * speeds[name]) if name in speeds else speed
            speeds[name] = min(max(speed, RANGE[0]), RANGE[1])
    with contextlib.suppress(OSError):  # a run is not worth losing for the next estimate
        write_json(store.root / SPEEDS, speeds, synced=False)
