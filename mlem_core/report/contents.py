"""Tables of a capsule that follow from its pair tables, as it is written and as it is verified."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.labels import Names
from mlem_core.base.typing import Layer
from mlem_core.data.columns import Kind
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.explanation import explain, with_transfer
from mlem_core.inference.partial import of_layers
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.partial import TRANSFERS
from mlem_core.report.shown import Drawing
from mlem_core.report.tables import csv_bytes
from mlem_core.storage.store import Store

FORMAT = 2
# Confidence intervals of more are not computed again.
MOST_REPLICATES = 10_000
# Those of `why_alike`.
WHY = ("why.csv", "why_layers.csv", "why_partial.csv", "similarity_partial.csv")


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
    images : whether they are SVG and PDF, else HTML
    maps : whether there are maps of the stimuli
    narrow, flags, options : as of `mlem_core.report.shown.Drawing`
    features, models : display names by identifier
    by : versions of what drew them
    """

    images: bool
    maps: bool
    narrow: bool
    flags: bool
    options: dict[str, str]
    features: dict[str, str]
    models: dict[str, str]
    by: dict[str, str]

    def drawing(self, pair: tuple[Layer, Layer] | None, store: Store) -> Drawing:
        """The same, with what is in a store where there are maps of the stimuli."""
        return Drawing(
            pair,
            store if self.maps else None,
            self.images,
            self.narrow,
            self.flags,
            Names(self.features, self.models),
            self.options,
        )


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


def tables_as_csv(results: Results) -> dict[str, bytes]:
    """The content of each file under `tables/`."""
    correlations = results.feature_correlations.rename_axis("feature").reset_index()
    named = {**results.tables(), "feature_correlations.csv": correlations}
    return {name: csv_bytes(table) for name, table in named.items()}


def as_json(value: About | dict[str, Any]) -> bytes:
    """An object as JSON, an entry a line."""
    found = asdict(value) if isinstance(value, About) else value
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()


def why_alike(
    analysis: Analysis, selection: Selection, pair: tuple[Layer, Layer]
) -> dict[str, pd.DataFrame]:
    """The RSA of two layers as a sum over the features, and that of every two layers.

    Returns
    -------
    why.csv (term, value), why_layers.csv (of `Decomposition.table`), why_partial.csv (of
    `Explanation.partial`) and similarity_partial.csv (of `PartialSimilarity.table`); the last two
    without transfer where the estimator is slow, and none with a single layer
    """
    if len(selection.layers) < 2:
        return {}
    own, rsa = analysis.subset(selection)
    layers = list(selection.layers)
    why = explain(analysis, *pair, features=selection.features)
    every = of_layers(own, rsa, selection.estimator).table(layers)
    if estimator_named(selection.estimator).slow:
        every = every.drop(columns=list(TRANSFERS))
    else:
        why = with_transfer(why, analysis, selection)
    tables = why.terms, decompose(own, rsa).table(layers), why.partial, every
    return dict(zip(WHY, tables, strict=True))
