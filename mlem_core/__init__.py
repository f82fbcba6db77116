"""Metric-learning encoding models in Python: what makes two language models think alike?

    from mlem_core import AnalysisSpec, compare, run

    analysis = run(AnalysisSpec(stimuli="probing", models=("mini-gpt2",)))
    results = analysis.results()
    results.importance     # model, layer, fold, feature, importance
    results.similarity_rsa
    analysis.plot.profiles()

    compare({"IT": y1, "V4": y2}, X).similarity  # arrays, and a table of features

`RidgeMLEM` fits one layer with scikit-learn's API; extensions add other estimators.
Nothing here imports torch until a model has to be run.
"""

from __future__ import annotations

import importlib

from mlem_core.base import VERSION as __version__

TYPE_CHECKING = False  # as of `typing`, which may be a file of that name: see `__main__`
if TYPE_CHECKING:
    from typing import Any

    from mlem_core.analysis.analysis import Analysis as Analysis
    from mlem_core.analysis.results import Results as Results
    from mlem_core.analysis.run import run as run
    from mlem_core.analysis.similarities import LayerSimilarity as LayerSimilarity
    from mlem_core.analysis.similarities import compared as compared
    from mlem_core.analysis.spec import AnalysisSpec as AnalysisSpec
    from mlem_core.base.errors import InputError as InputError
    from mlem_core.base.typing import Progress as Progress
    from mlem_core.comparing import ArrayComparison as ArrayComparison
    from mlem_core.comparing import compare as compare
    from mlem_core.estimators.base import RidgeMLEM as RidgeMLEM
    from mlem_core.inference.explanation import explain as explain
    from mlem_core.inference.explanation import with_intervals as with_intervals
    from mlem_core.inference.explanation_text import Explanation as Explanation
    from mlem_core.stimuli.reading.content import ReadAs as ReadAs
    from mlem_core.stimuli.roles import read_csv as read_csv
    from mlem_core.stimuli.stimulus_csv import from_frame as from_frame
    from mlem_core.stimuli.stimulus_csv import write_csv as write_csv
    from mlem_core.stimuli.stimulus_set import Feature as Feature
    from mlem_core.stimuli.stimulus_set import StimulusSet as StimulusSet
    from mlem_core.storage.store import Store as Store

_HOMES = {
    "analysis.analysis": ("Analysis",),
    "analysis.results": ("Results",),
    "analysis.run": ("run",),
    "analysis.similarities": ("LayerSimilarity", "compared"),
    "analysis.spec": ("AnalysisSpec",),
    "base.errors": ("InputError",),
    "base.typing": ("Progress",),
    "comparing": ("ArrayComparison", "compare"),
    "stimuli.reading.content": ("ReadAs",),
    "stimuli.roles": ("read_csv",),
    "stimuli.stimulus_set": ("Feature", "StimulusSet"),
    "stimuli.stimulus_csv": ("from_frame", "write_csv"),
    "estimators.base": ("RidgeMLEM",),
    "inference.explanation_text": ("Explanation",),
    "inference.explanation": ("explain", "with_intervals"),
    "storage.store": ("Store",),
}


def __getattr__(name: str) -> Any:
    # On first use: scikit-learn and SciPy take a second to import, and a page may need neither.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"mlem_core.{home}"), name)
    from mlem_core.extending import references, resolve

    exports = references("exports")
    if name == "__all__":
        return sorted([*exports, *(name for names in _HOMES.values() for name in names)])
    if name in exports:
        return resolve(exports[name])
    raise AttributeError(f"module 'mlem_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(("__version__", *__getattr__("__all__")))
