"""Specification of an analysis: all that decides its results, and how each choice is described."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from itertools import chain
from os import PathLike
from typing import Any, cast

from mlem_core.analysis.grouped import (
    Grouped,
    check_divisions,
    names_in_choices,
    of_these,
    trajectories_of,
)
from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.transforms import HALVES, POSITIONS, UNITS, StimulusFilter
from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.files import checked
from mlem_core.base.parameters import SEEDS, Parameter, check_fields, option, parse_names
from mlem_core.base.text import short
from mlem_core.estimators.registry import ESTIMATORS, check_values
from mlem_core.pairs.columns import AUTO, MISSING, NONE
from mlem_core.pairs.designs import BUDGET
from mlem_core.pairs.distances import DISTANCES, PRECOMPUTED, SQUARED, metrics
from mlem_core.representations.array_files import FIRST_COLUMN
from mlem_core.representations.extraction import ExtractionOptions
from mlem_core.representations.loading import DEVICES, DTYPES
from mlem_core.representations.registry import packaged
from mlem_core.representations.tokens import POOLINGS, SPECIAL_TOKENS
from mlem_core.stimuli.folds import FEWEST_FOLDS, FOLDS_OVER

# The choices that hold where no other is made, by whose they are.
AS_IN: dict[str, dict[str, Any]] = {
    "defaults": {},
    "paper1": {"estimator": "ridge", "values": (), "interactions": False, "distance": "euclidean"},
}
# Choices of earlier versions, which analyses that are kept name where they were not made.
_EARLIER = ("bins",)


def _parse_values(text: str) -> tuple[str, ...]:
    names = parse_names(text)
    return () if names == NONE else names


def _parse_layers(text: str) -> tuple[int, ...] | None:
    names = parse_names(text)
    if names == ("all",):
        return None
    try:
        layers = tuple(sorted({int(name) for name in names}))
    except ValueError:
        layers = ()
    if not layers:
        raise InputError(f"{short(text)} is not a list of layer numbers such as 0,3,6, nor all.")
    return layers


def parse_pairs(text: str) -> int:
    """Largest number of pairs in "20,000,000"; 0 for "all". InputError for another text."""
    plain = text.strip().lower().replace(",", "").replace("_", "")
    if plain == "all":
        return 0
    if not plain.isdecimal() or int(plain) < 1:
        raise InputError(f"found {text!r} pairs; expected a number such as 20000000, or all.")
    return int(plain)


def _models_help() -> str:
    return f"{', '.join(sorted(packaged()))}, a hub id or a local folder."


@dataclass(frozen=True)
class AnalysisSpec(Grouped, StimulusSource):
    """Everything that decides what an analysis gives.

    >>> spec = AnalysisSpec(stimuli="probing", models="minilm", layers=(0, 6))
    """

    models: tuple[str, ...] = option(
        (), "Models", _models_help, option="model", metavar="NAME", repeated=True
    )
    representations: tuple[tuple[str, str], ...] = option(
        (),
        "Representations",
        "A .npz, .safetensors or .mat file with layer_00, layer_01, ..., or a .csv of one layer.",
        metavar="NAME=FILE",
        pair=os.path.expanduser,
    )
    _: KW_ONLY
    precomputed: tuple[str, ...] = option(
        (),
        "Precomputed distances",
        "Representations whose arrays are distances, by their name; beside them models can be.",
        metavar="a,b",
        parse=parse_names,
    )
    layers: tuple[int, ...] | None = option(
        None,
        "Layers",
        "Numbers with commas between them; all, the default, takes every layer. Layer 0 is the "
        "embeddings, layer k what leaves block k.",
        metavar="all|0,3,6",
        parse=_parse_layers,
        range=(0, 2**31 - 1),
    )
    features: tuple[str, ...] | None = option(
        None, "Features", "By default all.", metavar="a,b", parse=parse_names
    )
    missing: str = option(
        "ignore",
        "Missing values",
        "What an empty cell means.",
        noun="policy for missing values",
        choices=lambda: MISSING,
    )
    as_in: str = option(
        "defaults",
        "Choices as in",
        "Whose choices hold where no other is made. paper1: those of Salle et al. (2024), which "
        "are ridge, features coded as same or different, and Euclidean distances.",
        choices=lambda: tuple(AS_IN),
        option="as",
    )
    estimator: str = option(
        "auto",
        "Estimator",
        "How the metric model is fitted; auto chooses for all layers together, in each fold by the "
        "stimuli that it does not test. Ridge is the first paper's; the code released with the "
        "second ends at its weights (profiles correlate at .999), because its soft ranks are in "
        "effect the values. spearman reaches what the second paper states: the highest rank "
        "correlation.",
        choices=lambda: ESTIMATORS,
    )
    interactions: bool = option(
        False,
        "Interactions",
        "Whether products of two features are columns of their own. Importances then have a line "
        "for each, and contributions count what they explain.",
    )
    values: tuple[str, ...] = option(
        AUTO,
        "Features coded by value",
        "Features whose values have a distance each: which two differ, not only whether two do. "
        "all is every one with few enough values; auto, the default, takes the categorical ones "
        "with few enough columns, where that predicts better in the inner folds.",
        metavar="a,b|all|none|auto",
        parse=_parse_values,
    )
    half: str = option(
        "both",
        "Half",
        "Which half of what folds are over is analysed: two halves say whether a result "
        "replicates.",
        choices=lambda: HALVES,
    )
    device: str = option(
        "auto",
        "Device",
        "Where models are run; auto takes a GPU if there is one.",
        choices=lambda: DEVICES,
    )
    dtype: str = option(
        "float32",
        "Numbers of the models",
        "What a model computes with. bfloat16 halves its memory and keeps 8 bits of each number.",
        choices=lambda: DTYPES,
    )
    distance: str = option(
        "euclidean",
        "Distance of representations",
        "The neural distance of two stimuli. `precomputed` says that every file holds distances; "
        "beside models, say it of the file alone. `crossnobis` is over the repetitions of a "
        "stimulus in the files; language models have the Euclidean distance beside it.",
        choices=lambda: DISTANCES,
    )
    already_squared: bool = option(
        False,
        "Already squared",
        "Whether distances that are given, and those of cosine and correlation, are squared ones "
        "already, which the metric model then predicts as they are; others stay as they are.",
    )
    folds: int = option(
        5,
        "Folds",
        "Folds of the cross-validation. A stimulus is tested in one of them at most, with all "
        "stimuli that folds keep together.",
        metavar="N",
        parse=int,
        range=(FEWEST_FOLDS, 2**31 - 1),
    )
    folds_over: str = option(
        "sentences",
        "Folds over",
        "What training has not seen of a stimulus that is tested: its sentence, its word (or what "
        "the column item says), or both. Over items and both, two stimuli of one word are no test "
        "pair. Over both only one stimulus in as many as there are folds is tested.",
        noun="choice of folds",
        choices=lambda: FOLDS_OVER,
    )
    seed: int = option(
        0,
        "Seed",
        "Decides which stimuli are in which fold, and what resampling draws.",
        metavar="N",
        parse=int,
        range=SEEDS,
    )
    pairs: int = option(
        BUDGET,
        "Pairs",
        "How many pairs of stimuli are compared at most. Beyond it (from 10,001 stimuli on) a "
        "balanced design of as many stands for all of them, each stimulus in equally many pairs; "
        "the standard error that this adds is measured and said. `all` compares every pair.",
        metavar=f"{BUDGET:,}|all",
        parse=parse_pairs,
        range=(0, 2**63 - 1),
    )
    special_tokens: str = option(
        "model",
        "Start and end tokens",
        "What stands before and after a sentence. The first position of many decoders is an "
        "outlier: with a start token no word is there.",
        noun="choice of special tokens",
        choices=lambda: SPECIAL_TOKENS,
    )
    pooling: str = option(
        "standard",
        "Pooling",
        "Which token, or mean over tokens, represents a word or a sentence.",
        choices=lambda: POOLINGS,
    )
    positions: str = option(
        "all",
        "Positions",
        "Which words are stimuli, by their place in the sentence.",
        noun="choice of positions",
        choices=lambda: POSITIONS,
    )
    units: str = option(
        "raw",
        "Units",
        "What is done with the units of a layer before distances are computed.",
        noun="choice of units",
        choices=lambda: UNITS,
    )

    @property
    def extraction(self) -> ExtractionOptions:
        """Options for taking hidden states from the models."""
        return ExtractionOptions(
            self.special_tokens, self.pooling, self.dtype, self.device, self.layers
        )

    @property
    def kept(self) -> StimulusFilter:
        """Choice of the stimuli that are analysed."""
        return StimulusFilter(self.positions, self.half, self.folds_over, self.seed)

    @property
    def pair_choices(self) -> dict[str, Any]:
        """Choices for distances, folds and codes of the pairs, for the keys of cached results."""
        names = ("distance", "missing", "folds", "seed", "folds_over", "values", "pairs")
        # Named where they are so, as what was kept before has no such entries.
        squared = {"already_squared": True} if self.already_squared else {}
        untested = {"untested": "pairs of one item"} if self.folds_over != "sentences" else {}
        return {name: getattr(self, name) for name in names} | squared | untested

    def distance_of(self, model: str) -> str:
        """The neural distance in the layers of a model or file: "precomputed" if it gives them."""
        # Distances over repetitions are computed once, from all stimuli. A model gives the same at
        # each repetition, so that its distance over them is the Euclidean one.
        if model in self.precomputed or over_repetitions(self, model):
            return PRECOMPUTED
        known = DISTANCES.named(self.distance)
        squared = SQUARED * (self.already_squared and known.may_be_squared)
        return "euclidean" if known.repeated else f"{self.distance}{squared}"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in AS_IN.get(self.as_in, {}).items():
            if getattr(self, name) == getattr(AnalysisSpec, name):
                object.__setattr__(self, name, value)
        for name, path in self.representations:
            if not isinstance(path, str | PathLike):
                raise InputError(
                    f"the representations {name!r} are of the type {type(path).__name__}; expected "
                    "the path of a file. `mlem_core.compare` takes arrays."
                )

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in chosen(self).items())
        return f"AnalysisSpec({given})"

    def to_dict(self) -> dict[str, Any]:
        """Dictionary for JSON."""
        return cast("dict[str, Any]", json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AnalysisSpec:
        """Specification from `to_dict`; InputError for an unknown entry, or one of another form."""
        if isinstance(values, Mapping):
            values = {name: one for name, one in values.items() if one or name not in _EARLIER}
            for name in values:
                if name not in parameters():
                    raise unknown("entry of an analysis", str(name), parameters())
        return checked(cls, values, "the analysis")

    def check(self) -> None:
        """Raise InputError for a choice that does not exist, before anything is computed."""
        check_fields(self)
        _check_models(self)
        check_values(self.estimator, self.values, self.interactions)


def parameters() -> dict[str, Parameter]:
    """The description of each field of an `AnalysisSpec`, in the order of a form."""
    return {each.name: each.metadata["parameter"] for each in fields(AnalysisSpec)}


AnalysisSpec.__doc__ = "\n".join(
    (
        f"{AnalysisSpec.__doc__}",
        *("    Attributes", "    ----------"),
        *(f"    {name} : {one.label}. {one.text}" for name, one in parameters().items()),
    )
)


def chosen(spec: AnalysisSpec) -> dict[str, Any]:
    """Values of the fields that are not the default, and the stimuli."""
    own = {name: getattr(spec, name) for name in parameters()}
    default = {name: getattr(AnalysisSpec, name) for name in own if name != "stimuli"}
    return {name: value for name, value in own.items() if value != default.get(name)}


def over_repetitions(spec: AnalysisSpec, model: str) -> bool:
    """Whether it is a file whose repetitions of a stimulus are compared with each other."""
    files = [name for name, _ in spec.representations if name not in spec.precomputed]
    return DISTANCES.named(spec.distance).repeated and model in files


def with_files(spec: AnalysisSpec, files: Sequence[tuple[str, str]]) -> AnalysisSpec:
    """Specification with these representations files (name, path) and no others."""
    names = [name for name, _ in files]
    kept: dict[str, Any] = {
        field: tuple(one for one in getattr(spec, field) if one[0] in names)
        for field in ("first_column", "subjects", "axes")
    }
    kept["precomputed"] = tuple(name for name in spec.precomputed if name in names)
    return with_models(replace(spec, representations=tuple(files), **kept), spec.models)


def with_models(spec: AnalysisSpec, models: Sequence[str]) -> AnalysisSpec:
    """Specification for these models and no others."""
    there = [*models, *(name for name, _ in spec.representations)]
    groups, labels = of_these(spec.groups, spec.labels, there)
    trajectories = trajectories_of(spec.trajectories, there)
    return replace(
        spec, models=tuple(models), groups=groups, labels=labels, trajectories=trajectories
    )


# Which models belong together.
OF_MODELS = ("groups", "labels", "trajectories", "property_groups", "property_kinds")
# What representations files hold.
OF_FILES = ("precomputed", "first_column", "subjects", "axes")


def _check_models(spec: AnalysisSpec) -> None:
    names = [*spec.models, *(name for name, _ in spec.representations)]
    if not names:
        raise InputError("no model is chosen; name at least one model or representations file.")
    files = dict(spec.representations)
    first = dict(spec.first_column)
    of_files: tuple[tuple[str, Iterable[str], Collection[str]], ...] = (
        ("representations file with precomputed distances", spec.precomputed, files),
        ("representations file with a first column", first, files),
        ("representations file with subjects", dict(spec.subjects), files),
        ("representations file with an axis", dict(spec.axes), files),
        ("choice for a first column", first.values(), FIRST_COLUMN),
    )
    for kind, given, choices in chain(of_files, names_in_choices(spec, names)):
        for name in given:
            check_choice(kind, name, choices)
    if spec.distance == PRECOMPUTED:
        _check_precomputed(spec)
    if DISTANCES[spec.distance].repeated and not any(
        over_repetitions(spec, name) for name in files
    ):
        raise InputError(
            f"the distance {spec.distance} needs a representations file with repetitions of each "
            "stimulus, (repetitions, stimuli, units); name one, or choose one of "
            f"{', '.join(metrics())}."
        )
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the model {name!r} is named twice; each name must be its own.")
        if not name.isprintable():
            raise InputError(
                f"the name of a model {name!r} holds a character that cannot be printed; choose "
                "another one."
            )
    check_divisions(spec, names)


def _check_precomputed(spec: AnalysisSpec) -> None:
    if spec.models:
        raise InputError(
            f"the distance {PRECOMPUTED} goes with representations files only, whose arrays are "
            f"distances already; found the model {spec.models[0]!r} beside it: leave it out, or "
            f"choose one of {', '.join(metrics())} and name the files that hold distances "
            "(--precomputed NAME)."
        )
    if spec.units != "raw":
        raise InputError(
            f"the units cannot be {spec.units} where the distance is {PRECOMPUTED}: distances have "
            "no units; the only choice is raw."
        )
