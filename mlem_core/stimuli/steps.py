"""Steps that change stimuli after they are read, by options of an analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlem_core.base.parameters import Registry
from mlem_core.extending import entry_modules
from mlem_core.stimuli.stimulus_set import StimulusSet


@dataclass(frozen=True)
class StimulusStep:
    """A change of stimuli after they are read.

    Attributes
    ----------
    name : of the option that asks for it
    place : steps follow each other by it
    change : a function (stimuli, source) that gives the changed stimuli; `source` has the fields of
        `mlem_core.analysis.source.StimulusSource`
    names_files : whether the option has pairs of a name and a file
    models : gives the models that are run for it, of a source
    fits_csv : whether a stimulus CSV can hold what it gives
    """

    name: str
    place: int
    change: Callable[[StimulusSet, Any], StimulusSet]
    names_files: bool = False
    models: Callable[[Any], tuple[str, ...]] = lambda source: ()
    fits_csv: bool = True


STEPS = Registry[StimulusStep]("stimulus step", entry_modules)
STEPS.register(
    StimulusStep(
        "kinds", 20, lambda stimuli, source: stimuli.with_kinds(source.ordered, source.nominal)
    )
)


def ordered_steps() -> list[StimulusStep]:
    """Steps in the order in which they change stimuli."""
    return sorted(STEPS.values(), key=lambda step: step.place)


def step_files(source: Any) -> list[Path]:
    """Files that the steps of a source read."""
    named = [getattr(source, step.name) for step in ordered_steps() if step.names_files]
    return [Path(path) for files in named for _, path in files]
