"""What a capsule says of itself: what was asked, what is shown, and the digests of its files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import Layer
from mlem_core.data.columns import Kind

FORMAT = 3
# Confidence intervals of more are not computed again.
MOST_REPLICATES = 10_000


@dataclass(frozen=True)
class SourceFile:
    """A file that stands for a model: where it is in the capsule, if it is."""

    file: str
    sha256: str
    included: bool


@dataclass(frozen=True)
class ShownOf:
    """What is shown; None is all features, or all layers, of the analysis."""

    features: tuple[str, ...] | None
    layers: tuple[Layer, ...] | None
    estimator: str
    interactions: bool

    def selection(self, analysis: Analysis) -> Selection:
        """What it stands for; raises InputError for what the analysis does not have."""
        return analysis.select(self.features, self.layers, self.estimator, self.interactions)


@dataclass(frozen=True)
class DrawnAs:
    """How the figures of a capsule were drawn, so that they can be drawn again.

    Attributes
    ----------
    narrow, flags, options : as of `mlem_core.report.shown.Drawing`
    features, models : display names by identifier
    """

    narrow: bool
    flags: bool
    options: dict[str, str]
    features: dict[str, str]
    models: dict[str, str]


@dataclass(frozen=True)
class About:
    """What `capsule.json` holds.

    Attributes
    ----------
    format : `FORMAT`
    spec : what was asked, as `AnalysisSpec.to_dict` has it
    kinds : "ordered", "nominal", "vector" or "rdm", by feature
    shown : what is shown of the analysis
    representations : the files that stand for models, by name
    models : digests of the weights, by model
    folders : the models that were folders of the machine, which a capsule only names
    files : SHA-256 of every other file
    pair : the two layers that are compared, if there are two
    derived : tables that `verify` does not compute again
    drawn : how the figures were drawn
    replicates : of the confidence intervals that `verify` computes again; 0 where there are none
    seal : SHA-256 of all that stands above
    """

    format: int
    spec: dict[str, Any]
    kinds: dict[str, Kind]
    shown: ShownOf
    representations: dict[str, SourceFile]
    models: dict[str, str]
    folders: tuple[str, ...]
    files: dict[str, str]
    pair: tuple[Layer, Layer] | None
    derived: tuple[str, ...]
    drawn: DrawnAs
    replicates: int = 0
    seal: str = ""

    def sealed(self) -> About:
        """The same with its seal, by which a change of any entry is known."""
        values = json.dumps(asdict(replace(self, seal="")), sort_keys=True)
        return replace(self, seal=hashlib.sha256(values.encode()).hexdigest())


def as_json(value: About | dict[str, Any]) -> bytes:
    """An object as JSON, an entry a line."""
    found = asdict(value) if isinstance(value, About) else value
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()
