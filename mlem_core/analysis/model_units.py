"""The models of an analysis, run by the workers of a cluster that share the store.

The unit is a model, where there is much text a shard of its sentences. Workers keep what they make
in the store, where `representations.from_model` then finds it: nothing but names travels back.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import look
from mlem_core.base.typing import Progress, Report
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models import representations, shards
from mlem_core.models.extraction import STAGE, VERSION, ExtractionOptions
from mlem_core.models.shards import Part, ShardedModel
from mlem_core.scale.executor import Executor, workers_sharing
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
    n_shards = shards.count_shards(stimuli)
    missing: list[ShardedModel] = []
    errors: dict[str, InputError] = {}
    for name in spec.models:
        try:
            if representations.find(stimuli, name, store, spec.extraction) is None:
                depends_on = representations.depends_on(stimuli, name, spec.extraction)
                missing.append(ShardedModel(name, n_shards, depends_on))
                if missing[-1].whole(store).exists():
                    # Damaged; workers only look whether it is there.
                    store.remove(STAGE, VERSION, **depends_on)
        except InputError as error:
            errors[name] = error
    if missing:
        errors |= _made(where, missing, (stimuli, spec.extraction, store), report)
    return errors


def _made(
    workers: Executor,
    missing: Sequence[ShardedModel],
    shared: tuple[StimulusSet, ExtractionOptions, Store],
    report: Report,
) -> dict[str, InputError]:
    """Have models run; the errors of those that cannot, of the first shard that has one."""
    stimuli, options, store = shared
    n_shards = missing[0].n_shards
    there = {one.name: set(one.there(store)) for one in missing}
    failed: dict[str, tuple[int, InputError]] = {}

    def told() -> None:
        # Of a model that has failed nothing is left to be done.
        done = sum(n_shards if name in failed else len(own) for name, own in there.items())
        unit = "models" if n_shards == 1 else "shards"
        report(Progress("representations", None, done, len(missing) * n_shards, unit))

    told()
    # A worker for each model, then one more for each as often as it has shards: those help with
    # what is not done.
    items = list(missing) * n_shards
    whole: set[str] = set()
    found = workers.each_of(part, items, (stimuli, options, store.root), store.root, gpu=True)
    for number, given in found:
        name = items[number].name
        one = Part((), (0, given)) if isinstance(given, InputError) else given
        there[name].update(one.done)
        if one.failed is None and len(one.done) == n_shards:
            whole.add(name)
        elif one.failed is not None and (name not in failed or one.failed[0] < failed[name][0]):
            failed[name] = one.failed
        told()
    for one in missing:
        if n_shards > 1 and one.name not in whole and len(one.there(store)) == n_shards:
            # On a disk that shows late what others wrote, the last two may both have missed it.
            shards.take_part(stimuli, options, store, one)
    # One worker may lack a model that others have.
    return {name: error for name, (_, error) in failed.items() if name not in whole}


def part(stimuli: StimulusSet, options: ExtractionOptions, root: Path, model: ShardedModel) -> Part:
    """What a worker does: its part of the representations of one model, now in the store at `root`.

    Raises
    ------
    InputError
        The model cannot be used on this machine.
    """
    store = Store(root)
    try:
        if model.n_shards > 1:
            done = shards.take_part(stimuli, options, store, model)
            if done.failed is None:
                return done
            number, error = done.failed
            return Part(done.done, (number, _named(error)))
        representations.from_model(stimuli, model.name, store, options, lambda *_: look())
    except InputError as error:
        raise _named(error) from None
    return Part((0,))


def _named(error: InputError) -> InputError:
    return InputError(f"on {platform.node()}, {error}")
