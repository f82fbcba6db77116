"""The variants of an analysis that an audit compares it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models


@dataclass(frozen=True)
class Variant:
    """What is changed in an analysis, and how a sentence begins that says what follows."""

    name: str
    says: str
    change: Callable[[AnalysisSpec], AnalysisSpec]


def _control(spec: AnalysisSpec) -> AnalysisSpec:
    own = tuple(name for name in spec.models if "@random" not in name)
    return with_models(with_files(spec, ()), [f"{name}@random" for name in own])


CONTROL = "random-weights"
VARIANTS = (
    Variant(
        "without-first", "without position 0", lambda spec: replace(spec, positions="without-first")
    ),
    Variant(
        "without-outliers",
        "without its outlier units",
        lambda spec: replace(spec, units="without-outliers"),
    ),
    Variant(
        "standardised",
        "with standardised units",
        lambda spec: replace(spec, units="standardised"),
    ),
    Variant("cosine", "with cosine distance", lambda spec: replace(spec, distance="cosine")),
    Variant(CONTROL, "with random weights", _control),
)
SAYS = {variant.name: variant.says for variant in VARIANTS}
