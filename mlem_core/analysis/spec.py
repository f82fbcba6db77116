"""What an analysis is: everything that decides what it gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mlem_core.analysis.transforms import POSITIONS, UNITS
from mlem_core.base.errors import InputError, unknown
from mlem_core.data import datasets
from mlem_core.data.stimuli import StimulusSet, read_csv
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.models.registry import DTYPES
from mlem_core.models.tokens import POOLINGS, SPECIAL_TOKENS
from mlem_core.pairs.distances import DISTANCES, PRECOMPUTED, metrics
from mlem_core.pairs.patterns import MISSING


@dataclass(frozen=True)
class AnalysisSpec:
    """Everything that decides what an analysis gives.

    Attributes
    ----------
    stimuli : name of a built-in set, or path of a stimulus CSV
    models : names of models, see `mlem_core.models.registry`
    representations : (name, path) of files that stand for models
    layers : layers to use of each model that has them; None is all
    features : features to use; None is all
    ordered, nominal : features whose kind is not what their values suggest
    missing : "ignore" or "level", see `mlem_core.pairs.patterns.PairIndex`
    estimator : name, see `mlem_core.estimators.registry`
    interactions : whether products of two features are weighed too
    distance : a name in `mlem_core.pairs.distances.DISTANCES`; "precomputed" where all that is
        compared are files whose arrays are distances (n_stimuli, n_stimuli)
    folds : number of folds of the cross-validation
    seed : seed of the folds
    device : "auto", "cpu" or "cuda"
    positions : "all" stimuli, or "without-first": without the words at position 0
    units : "raw", "standardised" (each of variance 1 over the stimuli) or "without-outliers", see
        `mlem_core.analysis.transforms`
    special_tokens : start and end tokens of a sentence: "model", as its tokenizer adds them,
        "none", or "start", with a start token in any case
    pooling : what of a model stands for a stimulus: "standard" (a word's last sub-token, the mean
        of a sentence), "mean" (of a word's sub-tokens) or "last" (token of a sentence)
    dtype : "float32" or "bfloat16", the numbers that models compute with
    """

    stimuli: str = "probing"
    models: tuple[str, ...] = ()
    representations: tuple[tuple[str, str], ...] = ()
    layers: tuple[int, ...] | None = None
    features: tuple[str, ...] | None = None
    ordered: tuple[str, ...] = ()
    nominal: tuple[str, ...] = ()
    missing: str = "ignore"
    estimator: str = "ridge"
    distance: str = "euclidean"
    folds: int = 5
    seed: int = 0
    device: str = "auto"
    interactions: bool = False
    positions: str = "all"
    units: str = "raw"
    special_tokens: str = "model"
    pooling: str = "standard"
    dtype: str = "float32"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        kept: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return kept

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> AnalysisSpec:
        """What `to_dict` gave; an unknown entry is an error."""
        names = [field.name for field in fields(cls)]
        for name in kept:
            if name not in names:
                raise unknown("entry of an analysis", name, names)

        def frozen(value: Any) -> Any:
            return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value

        return cls(**{name: frozen(value) for name, value in kept.items()})

    def check(self) -> None:
        """Raise InputError for a choice that does not exist, before anything is computed."""
        for kind, value, choices in (
            ("policy for missing values", self.missing, MISSING),
            ("estimator", self.estimator, ESTIMATORS),
            ("distance", self.distance, DISTANCES),
            ("device", self.device, ("auto", "cpu", "cuda")),
            ("choice of positions", self.positions, POSITIONS),
            ("choice of units", self.units, UNITS),
            ("choice of special tokens", self.special_tokens, SPECIAL_TOKENS),
            ("pooling", self.pooling, POOLINGS),
            ("dtype", self.dtype, DTYPES),
        ):
            if value not in choices:
                raise unknown(kind, value, choices)
        if self.folds < 3:
            raise InputError(
                f"found {self.folds} folds; at least 3 are needed, one to test and one to choose α."
            )
        names = [*self.models, *(name for name, _ in self.representations)]
        if not names:
            raise InputError("no model is chosen; name at least one model or representations file.")
        if self.distance == PRECOMPUTED and self.models:
            raise InputError(
                f"the distance {PRECOMPUTED} goes with representations files only, whose arrays "
                f"are distances already; found the model {self.models[0]!r} beside it: leave it "
                f"out, or choose one of {', '.join(metrics())}."
            )
        if self.distance == PRECOMPUTED and self.units != "raw":
            raise InputError(
                f"the units cannot be {self.units} where the distance is {PRECOMPUTED}: distances "
                "have no units; the only choice is raw."
            )
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"the model {name!r} is named twice; each name must be its own.")

    def load_stimuli(self) -> StimulusSet:
        """The stimuli with the kinds of their features, all features."""
        if self.stimuli in datasets.NAMES:
            return datasets.load(self.stimuli).with_kinds(self.ordered, self.nominal)
        if not Path(self.stimuli).exists() and not self.stimuli.lower().endswith(".csv"):
            raise unknown("stimulus set", self.stimuli, [*datasets.NAMES, "the path of a CSV"])
        return read_csv(Path(self.stimuli), ordered=self.ordered, nominal=self.nominal)
