"""The example: a finished analysis in the package, so that every view shows something at once.

Its confidence intervals, its audit and the multiverse of two layers come with it, as entries of a
store that is only read.

`make example` (or `python -m mlem_core.tasks.examples`) makes it anew.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mlem_core.analysis import files
from mlem_core.analysis.analysis import Analysis, key_of
from mlem_core.analysis.maps import stimulus_map, stimulus_map_stress
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, Progress, Report
from mlem_core.models.checkpoints import run_of
from mlem_core.storage.sealed import RESULT, seal, sealed
from mlem_core.storage.store import Store
from mlem_core.storage.watched import Digested

# What stands in an address for it.
ID = "example"
DAMAGED = "the example is damaged or not there; install the program again to have it."
FOLDER = Path(__file__).resolve().parent / "example_data"

# Some layers of each depth: a few MB instead of many.
LAYERS = (0, 1, 3, 6, 11, 18, 30)


class Kind(NamedTuple):
    """Models of one kind: its seeds, and what it is, as labels "factor:value"."""

    models: tuple[str, ...]
    labels: tuple[str, ...]


def _seeds(kind: str) -> tuple[str, ...]:
    return (kind, f"{kind}@seed1", f"{kind}@seed2")


# The models of the example, each in its kind. A seed that comes with the program is named here, and
# nowhere else: of kinds with several, the example has groups.
KINDS: Mapping[str, Kind] = {
    "mini-bert": Kind(_seeds("mini-bert"), ("objective:masked", "family:transformer")),
    "mini-gpt2": Kind(_seeds("mini-gpt2"), ("objective:causal", "family:transformer")),
    "mini-mamba": Kind(_seeds("mini-mamba"), ("objective:causal", "family:state space")),
    "minilm": Kind(("minilm",), ("objective:contrastive", "family:transformer")),
    "smollm2": Kind(("smollm2",), ("objective:causal", "family:transformer")),
}
# Checkpoints of training, as `AnalysisSpec.trajectories`; they belong to no kind.
TRAJECTORIES: Mapping[str, tuple[str, ...]] = {}


def of_kinds(
    kinds: Mapping[str, Kind], trajectories: Mapping[str, tuple[str, ...]] | None = None
) -> AnalysisSpec:
    """The analysis of all models of some kinds; groups and labels where a kind has several."""
    models = {model for kind in kinds.values() for model in kind.models}
    spec = AnalysisSpec(stimuli="probing", models=tuple(sorted(models)), layers=LAYERS)
    seeds = {name: kind.models for name, kind in kinds.items() if len(kind.models) > 1}
    if seeds:
        # A kind of one model is that model.
        called = {name: name if name in seeds else kind.models[0] for name, kind in kinds.items()}
        labels = {called[name]: kind.labels for name, kind in kinds.items()}
        spec = replace(spec, groups=tuple(seeds.items()), labels=tuple(labels.items()))
    if trajectories:
        steps = {model for members in trajectories.values() for model in members} - models
        labels_of = tuple((step, _of_run(step, kinds)) for step in sorted(steps)) if seeds else ()
        spec = replace(
            spec,
            models=(*spec.models, *sorted(steps)),
            labels=(*spec.labels, *labels_of),
            trajectories=tuple(trajectories.items()),
        )
    return spec


def _of_run(checkpoint: str, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """The labels of a checkpoint: those of the model that it is of."""
    of = next(kind for kind in kinds.values() if run_of(checkpoint) in kind.models)
    return of.labels


SPEC = of_kinds(KINDS, TRAJECTORIES)


@functools.lru_cache(maxsize=1)
def example() -> Analysis:
    """The analysis, as it was made; the same object each time.

    Raises
    ------
    InputError
        Its files are not there, or are not those that came with the program.
    OSError, ValueError, LookupError, TypeError
        They are of another version.
    """
    if not sealed(FOLDER / "result", RESULT):
        raise InputError(DAMAGED)
    return files.load(FOLDER / "result")


def is_there() -> bool:
    """Whether it was installed with the program."""
    return (FOLDER / "result" / "analysis.json").is_file()


def digest() -> str:
    """What tells it from the example of another version; empty where it is not there."""
    path = FOLDER / "result" / "analysis.json"
    try:
        return Digested.of(path).digest
    except OSError:
        return ""


def size() -> int:
    """The bytes of its files."""
    return sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())


def make(
    store: Store, spec: AnalysisSpec = SPEC, folder: Path = FOLDER, progress: Report | None = None
) -> Analysis:
    """Run it and put it in place of what was there.

    With it come the maps of its stimuli, its confidence intervals, its audit, and of the two layers
    that are looked at first the multiverse and the pairs of stimuli behind each term.
    """
    from mlem_core.inference import layer_intervals
    from mlem_core.robustness import audit, multiverse

    analysis = run(spec, store, progress)
    maps, stress = {}, {}
    for done, (model, layer) in enumerate(analysis.layers):
        if progress is not None:
            progress(Progress("maps", None, done, len(analysis.layers), "layers"))
        points = stimulus_map(analysis, model, layer, store)
        maps[(model, layer)] = points[["x", "y"]].to_numpy()
        stress[(model, layer)] = stimulus_map_stress(analysis, model, layer, store)
    # Which machine made it is of no interest to those who get it.
    manifest = {name: value for name, value in analysis.manifest.items() if name != "machine"}
    analysis = replace(analysis, maps=maps, map_stress=stress, manifest=manifest)
    # Look at their audit when the example is made from other weights.
    pair = analysis.most_alike()
    layer_intervals.layer_intervals(analysis, store, report=progress)
    audit.audit(analysis, store, progress)
    multiverse.multiverse(analysis, pair, store, progress=progress)
    behind_it = _pairs_behind(analysis, pair, store)
    entries = (
        layer_intervals.STAGE.where(store, key_of(analysis, analysis.select())),
        audit.STAGE.where(store, audit.depends_on(analysis)),
        multiverse.STAGE.where(store, multiverse.depends_on(analysis, pair)),
        *behind_it,
    )
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        unfinished.chmod(0o755)
        (unfinished / "result").mkdir()
        files.save(analysis, unfinished / "result")
        seal(unfinished / "result", RESULT)
        for entry in filter(None, entries):
            shutil.copytree(entry, unfinished / "store" / entry.parent.name / entry.name)
        for name in ("result", "store"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (unfinished / name).rename(folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    example.cache_clear()
    return analysis


def _pairs_behind(analysis: Analysis, pair: tuple[Layer, Layer], store: Store) -> list[Path | None]:
    """The entries of the store with the pairs of stimuli behind each term of two layers."""
    from mlem_core.inference import pair_contributions
    from mlem_core.measures.decomposition import UNEXPLAINED

    features, entries = analysis.select().features, []
    for term in (*features, UNEXPLAINED):
        for most in (True, False):
            asked = analysis, store, pair, features, term
            pair_contributions.pair_contributions(*asked, most=most)
            entries.append(pair_contributions.kept_at(*asked, most=most))
    return entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the example anew, from this machine's store where that has its parts."""

    def say(progress: Progress) -> None:
        if progress.done == progress.total:
            print(f"{progress.stage} {progress.model or ''}".strip(), file=sys.stderr)

    make(Store(overlays=()), progress=say)
    print(f"{FOLDER}: {size() / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
