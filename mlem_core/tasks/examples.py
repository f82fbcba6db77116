"""The example: a finished analysis in the package, so that every view shows something at once.

Its confidence intervals and its audit come with it, as entries of a store that is only read.

`make example` (or `python -m mlem_core.tasks.examples`) makes it anew.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlem_core.analysis import files
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import FITS, SelectionContext, Stage
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, readable
from mlem_core.base.typing import Progress, Report
from mlem_core.extending import functions
from mlem_core.storage.digests import RESULT, Digested, seal, sealed
from mlem_core.storage.store import Store

# What stands in an address for it.
ID = "example"
DAMAGED = "the example is damaged or not there; install the program again to have it."
FOLDER = Path(__file__).resolve().parent / "example_data"

# Some layers of each depth: a few MB instead of many.
LAYERS = (0, 1, 3, 6, 11, 18, 30)


# Models that are seeds of one kind, and what each kind is, as "factor:value". Seeds that come with
# the program are named here, and nowhere else.
GROUPS = {
    kind: (kind, f"{kind}@seed1", f"{kind}@seed2")
    for kind in ("mini-bert", "mini-gpt2", "mini-mamba")
}
LABELS = {
    "mini-bert": ("objective:masked", "family:transformer"),
    "mini-gpt2": ("objective:causal", "family:transformer"),
    "mini-mamba": ("objective:causal", "family:state space"),
    "minilm": ("objective:contrastive", "family:transformer"),
    "smollm2": ("objective:causal", "family:transformer"),
}
# Labels are an option of an extension, which may not be there; nothing else reads them.
SPEC = AnalysisSpec.from_dict(
    {
        "stimuli": "probing",
        "models": sorted({*itertools.chain(*GROUPS.values()), *LABELS}),
        "layers": LAYERS,
        "groups": [*GROUPS.items()],
        "labels": [*LABELS.items()],
    }
)


@functools.lru_cache(maxsize=1)
def example() -> Analysis:
    """The analysis, as it was made; the same object each time.

    Raises
    ------
    InputError
        Its files are not there, or are not those that came with the program.
    """
    if not sealed(FOLDER / "result", RESULT):
        raise InputError(DAMAGED)
    with readable("the example", "analysis", OSError, ValueError, LookupError, TypeError):
        return files.load_analysis(FOLDER / "result")


def is_there() -> bool:
    """Whether it was installed with the program."""
    return (FOLDER / "result" / "analysis.json").is_file()


def digest() -> str:
    """The digest that tells it from another version's example; empty where it is not there."""
    path = FOLDER / "result" / "analysis.json"
    try:
        return Digested.from_file(path).digest
    except OSError:
        return ""


def example_size() -> int:
    """The bytes of its files."""
    return sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())


def make(store: Store, progress: Report) -> None:
    """Run it and put it in place of what was there.

    With it come its fits, also without each feature, its confidence intervals, what extensions
    compute for it, and of the two layers that are looked at first their own intervals and the pairs
    of stimuli behind each term.
    """
    from mlem_core.inference.explanation import PAIR_INTERVALS
    from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
    from mlem_core.inference.pair_contributions import PAIR_CONTRIBUTIONS
    from mlem_core.measures.decomposition import UNEXPLAINED

    analysis = run(SPEC, store, progress)
    # Which machine made it is of no interest to those who get it.
    manifest = {name: value for name, value in analysis.manifest.items() if name != "machine"}
    analysis = replace(analysis, manifest=manifest)
    # Look at their audit when the example is made from other weights.
    pair = analysis.most_alike()
    context = SelectionContext.from_analysis(analysis, store, progress)
    both = context.reselect(layers=pair)
    features = context.selection.features
    selections = [features, *(tuple(f for f in features if f != left_out) for left_out in features)]
    entries = [
        *(_entry(FITS, context.reselect(features=some)) for some in selections),
        _entry(LAYER_INTERVALS, context),
        _entry(LAYER_CHANCE, context),
        *(
            _entry(PAIR_CONTRIBUTIONS, both, term=term, most=most)
            for term in (*both.selection.features, UNEXPLAINED)
            for most in (True, False)
        ),
        _entry(PAIR_INTERVALS, both),
    ]
    for example_entries in functions("example"):
        entries += example_entries(analysis, pair, store, progress)
    for name in ("result", "store"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    result = FOLDER / "result"
    result.mkdir(parents=True)
    files.save_analysis(analysis, result)
    seal(result, RESULT)
    for entry in filter(None, entries):
        shutil.copytree(entry, FOLDER / "store" / entry.parent.name / entry.name)


def _entry(stage: Stage[Any], context: SelectionContext, **options: Any) -> Path | None:
    """The entry of the store with the result of a stage, which is computed."""
    stage.get(context, **options)
    return stage.folder(context, **options)


def remake_example() -> int:
    """Make the example anew, from this machine's store where that has its parts."""

    def say(progress: Progress) -> None:
        if progress.done == progress.total:
            print(f"{progress.stage} {progress.model or ''}".strip(), file=sys.stderr)

    make(Store(overlays=()), say)
    print(f"{FOLDER}: {example_size() / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(remake_example())
