"""The models of an analysis, run by the workers of a cluster that share the store: one each.

Workers keep what they make in the store, where `representations.from_model` then finds it: nothing
but names travels back.
"""

from __future__ import annotations

import platform
from itertools import chain
from pathlib import Path

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import check_cancelled
from mlem_core.base.typing import Progress, Report
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models import representations
from mlem_core.models.extraction import ExtractionOptions
from mlem_core.scale.executor import workers_sharing
from mlem_core.storage.store import Store


def extracted_there(
    spec: AnalysisSpec, stimuli: StimulusSet, store: Store, report: Report
) -> dict[str, InputError]:
    """Have the workers of a cluster that share the store run the models; what is wrong with some.

    Where they do not share it, and on this machine, nothing is done: models run here.
    """
    where = workers_sharing(store.root)
    if where.is_here:
        return {}
    missing: list[str] = []
    errors: dict[str, InputError] = {}
    for name in spec.models:
        try:
            if representations.find(stimuli, name, store, spec.extraction) is None:
                missing.append(name)
        except InputError as error:
            errors[name] = error
    if not missing:
        return errors
    shared = stimuli, spec.extraction, store.root
    found = where.each_of(keep_states, missing, shared, store.root, gpu=True)
    for done, (number, failed) in enumerate(chain([(0, None)], found)):
        report(Progress("representations", None, done, len(missing), "models"))
        if failed is not None:
            errors[missing[number]] = failed
    return errors


def keep_states(stimuli: StimulusSet, options: ExtractionOptions, root: Path, model: str) -> None:
    """What a worker does: the hidden states of one model, now in the store at `root`.

    Raises
    ------
    InputError
        The model cannot be used on this machine.
    """
    try:
        representations.from_model(
            stimuli, model, Store(root), options, lambda *_: check_cancelled()
        )
    except InputError as error:
        raise InputError(f"on {platform.node()}, {error}") from None
