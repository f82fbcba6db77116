"""The variants of an analysis that an audit compares it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models


@dataclass(frozen=True)
class Variant:
    """What is changed in an analysis, and how a sentence begins that says what follows."""

    name: str
    says: str
    change: Callable[[Analysis], AnalysisSpec]


def controls(analysis: Analysis) -> dict[str, str]:
    """The control of each model: the same architecture with random weights.

    Models of one architecture and size have other random weights each: with the same ones they
    would be alike for being one network.
    """
    found, seen = {}, Counter[tuple[str, tuple[int, ...]]]()
    for name, about in analysis.manifest["models"].items():
        if name not in analysis.spec.models or "@random" in name:
            continue
        network = about.get("architecture", ""), tuple(about.get("units", ()))
        found[name] = f"{name}@random{seen[network] or ''}"
        seen[network] += 1
    return found


def _control(analysis: Analysis) -> AnalysisSpec:
    return with_models(with_files(analysis.spec, ()), list(controls(analysis).values()))


CONTROL = "random-weights"
VARIANTS = (
    Variant(
        "without-first",
        "without position 0",
        lambda analysis: replace(analysis.spec, positions="without-first"),
    ),
    Variant(
        "without-outliers",
        "without its outlier units",
        lambda analysis: replace(analysis.spec, units="without-outliers"),
    ),
    Variant(
        "standardised",
        "with standardised units",
        lambda analysis: replace(analysis.spec, units="standardised"),
    ),
    Variant(
        "cosine",
        "with cosine distance",
        lambda analysis: replace(analysis.spec, distance="cosine"),
    ),
    Variant(CONTROL, "with random weights", _control),
)
SAYS = {variant.name: variant.says for variant in VARIANTS}
