"""Metric-learning encoding models in Python: what makes two language models think alike?

    from mlem_core import AnalysisSpec, compare, run

    analysis = run(AnalysisSpec(stimuli="probing", models=("mini-gpt2",)))
    results = analysis.results()
    results.importance     # model, layer, fold, feature, importance
    results.similarity_rsa
    analysis.plot.profiles()

    compare({"IT": y1, "V4": y2}, X).similarity  # arrays, and a table of features

`RidgeMLEM`, `SpearmanMLEM`, `FRRSA` and `SoftRankMLEM` fit one layer with scikit-learn's API.
Nothing here imports torch until a model has to be run.
"""

from __future__ import annotations

import importlib

from mlem_core.base.version import VERSION as __version__

TYPE_CHECKING = False  # as of `typing`, which may be a file of that name: see `__main__`
if TYPE_CHECKING:
    from typing import Any

    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.maps import stimulus_map
    from mlem_core.analysis.results import Results
    from mlem_core.analysis.run import run
    from mlem_core.analysis.similarities import LayerSimilarity, compared
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.base.errors import InputError
    from mlem_core.base.typing import Progress
    from mlem_core.comparing import ArrayComparison, compare
    from mlem_core.data.distance_features import with_rdm, with_vector
    from mlem_core.data.reading.content import ReadAs
    from mlem_core.data.roles import read_csv
    from mlem_core.data.stimuli import Feature, StimulusSet
    from mlem_core.data.stimulus_csv import from_frame, write_csv
    from mlem_core.data.treebank import read_treebank
    from mlem_core.estimators.base import RidgeMLEM
    from mlem_core.estimators.spearman import FRRSA, SoftRankMLEM, SpearmanMLEM
    from mlem_core.inference.explained import Explanation
    from mlem_core.inference.explanation import explain, with_intervals, with_transfer
    from mlem_core.inference.what_else import explain_rest
    from mlem_core.robustness.erasure import Erasure, erase
    from mlem_core.scale.cluster import computing_on
    from mlem_core.storage.store import Store

__all__ = [
    "FRRSA",
    "Analysis",
    "AnalysisSpec",
    "ArrayComparison",
    "Erasure",
    "Explanation",
    "Feature",
    "InputError",
    "LayerSimilarity",
    "Progress",
    "ReadAs",
    "Results",
    "RidgeMLEM",
    "SoftRankMLEM",
    "SpearmanMLEM",
    "StimulusSet",
    "Store",
    "compare",
    "compared",
    "computing_on",
    "erase",
    "explain",
    "explain_rest",
    "from_frame",
    "read_csv",
    "read_treebank",
    "run",
    "stimulus_map",
    "with_intervals",
    "with_rdm",
    "with_transfer",
    "with_vector",
    "write_csv",
]

_HOMES = {
    "analysis.analysis": ("Analysis",),
    "analysis.maps": ("stimulus_map",),
    "analysis.results": ("Results",),
    "analysis.run": ("run",),
    "analysis.similarities": ("LayerSimilarity", "compared"),
    "analysis.spec": ("AnalysisSpec",),
    "base.errors": ("InputError",),
    "base.typing": ("Progress",),
    "comparing": ("ArrayComparison", "compare"),
    "data.distance_features": ("with_rdm", "with_vector"),
    "data.reading.content": ("ReadAs",),
    "data.roles": ("read_csv",),
    "data.stimuli": ("Feature", "StimulusSet"),
    "data.stimulus_csv": ("from_frame", "write_csv"),
    "data.treebank": ("read_treebank",),
    "estimators.base": ("RidgeMLEM",),
    "estimators.spearman": ("FRRSA", "SoftRankMLEM", "SpearmanMLEM"),
    "robustness.erasure": ("Erasure", "erase"),
    "inference.explained": ("Explanation",),
    "inference.explanation": ("explain", "with_intervals", "with_transfer"),
    "inference.what_else": ("explain_rest",),
    "scale.cluster": ("computing_on",),
    "storage.store": ("Store",),
}


def __getattr__(name: str) -> Any:
    # On first use: scikit-learn and SciPy take a second to import, and a page may need neither.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"mlem_core.{home}"), name)
    raise AttributeError(f"module 'mlem_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(("__version__", *__all__))
