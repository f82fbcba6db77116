"""What makes two language models think alike? Metric-learning encoding models, from Python.

    from mlem_core import AnalysisSpec, Store, run

    analysis = run(AnalysisSpec(stimuli="probing", models=("minilm",)), Store())
    results = analysis.results()
    results.importance     # model, layer, fold, feature, importance
    results.similarity_rsa

`RidgeMLEM`, `SpearmanMLEM` and `FRRSA` fit one layer with scikit-learn's API. Nothing here imports
torch until a model has to be run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlem_core.analysis import Analysis, Progress, run
    from mlem_core.errors import InputError
    from mlem_core.metric import RidgeMLEM
    from mlem_core.results import Results
    from mlem_core.spearman import FRRSA, SpearmanMLEM
    from mlem_core.spec import AnalysisSpec
    from mlem_core.stimuli import Feature, StimulusSet, read_csv, write_csv
    from mlem_core.store import Store
    from mlem_core.why import Explanation, explain

__all__ = [
    "FRRSA",
    "Analysis",
    "AnalysisSpec",
    "Explanation",
    "Feature",
    "InputError",
    "Progress",
    "Results",
    "RidgeMLEM",
    "SpearmanMLEM",
    "StimulusSet",
    "Store",
    "explain",
    "read_csv",
    "run",
    "write_csv",
]

_HOMES = {
    "analysis": ("Analysis", "Progress", "run"),
    "errors": ("InputError",),
    "metric": ("RidgeMLEM",),
    "results": ("Results",),
    "spec": ("AnalysisSpec",),
    "spearman": ("FRRSA", "SpearmanMLEM"),
    "stimuli": ("Feature", "StimulusSet", "read_csv", "write_csv"),
    "store": ("Store",),
    "why": ("Explanation", "explain"),
}


def __getattr__(name: str) -> Any:
    # On first use: scikit-learn and SciPy take a second to import, and a page may need neither.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"mlem_core.{home}"), name)
    raise AttributeError(f"module 'mlem_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
