"""Contents of an audit: the variants of an analysis, and the tables of the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.pairs.similarities import SIMILARITIES, Similarity


@dataclass(frozen=True)
class Variant:
    """Change of an analysis for an audit, and the beginning of the sentence on its effect."""

    name: str
    says: str
    change: Callable[[Analysis], AnalysisSpec]


def controls(analysis: Analysis) -> dict[str, str]:
    """The control of each model: the same architecture with random weights.

    Models of one architecture and size have other random weights each: with the same ones they
    would be similar for being one network.
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


def _changed(name: str, says: str, **field: Any) -> Variant:
    """The variant in which a field of the spec is another."""
    return Variant(name, says, lambda analysis: replace(analysis.spec, **field))


CONTROL = "random-weights"
VARIANTS = (
    _changed("without-first", "without position 0", positions="without-first"),
    _changed("without-outliers", "without its outlier units", units="without-outliers"),
    _changed("standardised", "with standardised units", units="standardised"),
    _changed("cosine", "with cosine distance", distance="cosine"),
    Variant(CONTROL, "with random weights", _control),
)
SAYS = {variant.name: variant.says for variant in VARIANTS}


@dataclass(frozen=True)
class Audit:
    """Tables on each layer, to be read before its results are believed.

    It is of one similarity of two layers, RSA or another, whose name columns have in its place.

    Attributes
    ----------
    layers : model, layer, position0 and position0_ranks (share of the variance of the distances
        and of their ranks, see `position_share`), mean_cosine, n_outliers, outliers (numbers of the
        units, largest first), outlier_share (of the variance of all units), rho (held-out), top
        (most important feature), note (what is striking, in sentences)
    changes : model, layer, variant, tau (of the two profiles), top and top_before, less, more and
        lead (two features that changed places, if any did, see `audit.compare`), rho and
        rho_before, same (Spearman ρ of the distances in both), rsa_change and rsa_with (where the
        layer's RSA with another layer changes most)
    pairs : model_a, layer_a, model_b, layer_b, variant, rsa, rsa_before, tau, tau_before
    notices : sentences about what could not be looked at
    """

    layers: pd.DataFrame
    changes: pd.DataFrame
    pairs: pd.DataFrame
    notices: tuple[str, ...]

    @property
    def similarity(self) -> Similarity:
        """The similarity of two layers that it is of: its column is the first after the variant."""
        return SIMILARITIES[self.pairs.columns[list(self.pairs.columns).index("variant") + 1]]


def short_of(measure: str) -> str:
    """Short name of "tau", or of a similarity of two layers."""
    return "τ" if measure == "tau" else SIMILARITIES[measure].short
