"""Specification of an analysis: all that decides its results, and how each choice is described."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, cast

from mlem_core.analysis.model_source import ModelSource
from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.transforms import HALVES, POSITIONS, UNITS, StimulusFilter
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import checked
from mlem_core.base.parameters import SEEDS, Parameter, check_fields, option, parse_names
from mlem_core.base.text import listed
from mlem_core.estimators.registry import ESTIMATORS, check_values
from mlem_core.extending import with_extension_options
from mlem_core.pairs.columns import AUTO, MISSING, NONE
from mlem_core.pairs.designs import BUDGET
from mlem_core.pairs.distances import DISTANCES, PRECOMPUTED, SQUARED, metrics
from mlem_core.stimuli.folds import FEWEST_FOLDS, FOLDS_OVER
from mlem_core.stimuli.presentation import parse_lag

# The choices that hold where no other is made, by whose they are.
AS_IN: dict[str, dict[str, Any]] = {
    "defaults": {},
    "paper1": {"estimator": "ridge", "values": (), "interactions": False, "distance": "euclidean"},
}


def _parse_values(text: str) -> tuple[str, ...]:
    names = parse_names(text)
    return () if names == NONE else names


def parse_pairs(text: str) -> int:
    """Largest number of pairs in "20,000,000"; 0 for "all". InputError for another text."""
    plain = text.strip().lower().replace(",", "").replace("_", "")
    if plain == "all":
        return 0
    if not plain.isdecimal() or int(plain) < 1:
        raise InputError(f"found {text!r} pairs; expected a number such as 20000000, or all.")
    return int(plain)


@dataclass(frozen=True, kw_only=True)
class AnalysisChoices(ModelSource, StimulusSource):
    """Everything that decides what an analysis gives.

    >>> spec = AnalysisSpec(stimuli="probing", models="minilm", layers=(0, 6))
    """

    features: tuple[str, ...] | None = option(
        None, "Features", "By default all.", metavar="a,b", parse=parse_names
    )
    missing: str = option(
        "ignore",
        "Missing values",
        "What an empty cell means.",
        noun="policy for missing values",
        choices=lambda: MISSING,
        section="stimuli",
    )
    half: str = option(
        "both",
        "Half",
        "Which half of what folds are over is analysed: two halves say whether a result "
        "replicates.",
        choices=lambda: HALVES,
    )
    positions: str = option(
        "all",
        "Positions",
        "Which words are stimuli, by their place in the sentence.",
        noun="choice of positions",
        choices=lambda: POSITIONS,
        section="models",
    )
    units: str = option(
        "raw",
        "Units",
        "What is done with the units of a layer before distances are computed.",
        noun="choice of units",
        choices=lambda: UNITS,
        section="models",
    )
    distance: str = option(
        "euclidean",
        "Distance of representations",
        "The neural distance of two stimuli. `precomputed` says that every file holds distances; "
        "beside models, say it of the file alone. One over repetitions compares those of each "
        "stimulus in the files; language models have the Euclidean distance beside it.",
        choices=lambda: DISTANCES,
    )
    already_squared: bool = option(
        False,
        "Already squared",
        "Whether distances that are given, and those of cosine and correlation, are squared ones "
        "already, which the metric model then predicts as they are; others stay as they are.",
        section="models",
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
    lag: str = option(
        "",
        "Lag",
        "Two stimuli of one run that came closer to each other than this are no pair: not for a "
        "fit, nor for a test. A number counts stimuli, such as 10; with s, ms or min it is time by "
        "the column whose role is order, such as 8s.",
        metavar="N|8s",
        parse=parse_lag,
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
        near = {"lag": self.lag} if self.lag else {}
        return {name: getattr(self, name) for name in names} | squared | untested | near

    def neural_distance(self, model: str) -> str:
        """The neural distance in the layers of a model or file: "precomputed" if it gives them."""
        # Distances over repetitions are computed once, from all stimuli. A model gives the same at
        # each repetition, so that its distance over them is the Euclidean one.
        if model in self.precomputed or compares_repetitions(self, model):
            return PRECOMPUTED
        known = DISTANCES.named(self.distance)
        squared = SQUARED * (self.already_squared and known.may_be_squared)
        return "euclidean" if known.repeated else f"{self.distance}{squared}"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lag", parse_lag(str(self.lag)))
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
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Specification from `to_dict`; InputError for an entry of another form.

        Entries that no option has are left out; `unread_options` says which.
        """
        if isinstance(values, Mapping):
            values = {name: value for name, value in values.items() if name in parameters()}
        return checked(cls, values, "the analysis")

    def check(self) -> None:
        """Raise InputError for a choice that does not exist, before anything is computed."""
        check_fields(self)
        if not self.names:
            raise InputError("no model is chosen; name at least one model or representations file.")
        for kind, names, choices in self.names_in_choices():
            for name in names:
                check_choice(kind, name, choices)
        self._check_distance()
        self.check_models()
        check_values(self.estimator, self.values, self.interactions)

    def _check_distance(self) -> None:
        if self.distance == PRECOMPUTED and self.models:
            raise InputError(
                f"the distance {PRECOMPUTED} goes with representations files only, whose arrays "
                f"are distances already; found the model {self.models[0]!r} beside it: leave it "
                f"out, or choose one of {', '.join(metrics())} and name the files that hold "
                "distances (--precomputed NAME)."
            )
        if self.distance == PRECOMPUTED and self.units != "raw":
            raise InputError(
                f"the units cannot be {self.units} where the distance is {PRECOMPUTED}: distances "
                "have no units; the only choice is raw."
            )
        if DISTANCES[self.distance].repeated and not any(
            compares_repetitions(self, name) for name, _ in self.representations
        ):
            raise InputError(
                f"the distance {self.distance} needs a representations file with repetitions of "
                "each stimulus, (repetitions, stimuli, units); name one, or choose one of "
                f"{', '.join(metrics())}."
            )


if TYPE_CHECKING:

    class AnalysisSpec(AnalysisChoices):
        def __init__(
            self, stimuli: str = ..., models: Any = ..., representations: Any = ..., **choices: Any
        ) -> None: ...

else:
    AnalysisSpec = with_extension_options("AnalysisSpec", AnalysisChoices, "models")


def parameters() -> dict[str, Parameter]:
    """The description of each field of an `AnalysisSpec`, in the order of a form."""
    return {each.name: each.metadata["parameter"] for each in fields(AnalysisSpec)}


def unread_options(values: Mapping[str, Any]) -> list[str]:
    """A sentence on the entries of a kept specification that no option has, if one has a value.

    They are of extensions that are not installed. What such an option changes in the stimuli shows
    in their digest; others change nothing that is computed of a model.
    """
    names = sorted(name for name in values.keys() - parameters().keys() if values[name])
    return [f"No installed extension reads these options: {listed(names)}."] if names else []


def names_in_section(section: str) -> list[str]:
    """Names of the fields of a section of the options, see `Parameter`."""
    return [name for name, described in parameters().items() if described.section == section]


def further_files() -> list[str]:
    """Names of the fields of files by which representations files are read."""
    return [name for name in names_in_section("files") if parameters()[name].metavar == "NAME=FILE"]


AnalysisSpec.__doc__ = "\n".join(
    (
        f"{AnalysisSpec.__doc__}",
        *("    Attributes", "    ----------"),
        *(f"    {name} : {one.label}. {one.text}" for name, one in parameters().items()),
    )
)


def chosen(spec: AnalysisChoices) -> dict[str, Any]:
    """Values of the fields that are not the default, and the stimuli."""
    own = {name: getattr(spec, name) for name in parameters()}
    default = {name: getattr(AnalysisSpec, name) for name in own if name != "stimuli"}
    return {name: value for name, value in own.items() if value != default.get(name)}


def compares_repetitions(spec: AnalysisChoices, model: str) -> bool:
    """Whether it is a file whose repetitions of a stimulus are compared with each other."""
    files = [name for name, _ in spec.representations if name not in spec.precomputed]
    return DISTANCES.named(spec.distance).repeated and model in files


def with_files(spec: AnalysisSpec, files: Sequence[tuple[str, str]]) -> AnalysisSpec:
    """Specification with these representations files (name, path) and no others."""
    names, changes = dict(files), dict[str, Any]()
    for field in names_in_section("files"):
        changes[field] = tuple(
            value
            for value in getattr(spec, field)
            if (value if isinstance(value, str) else value[0]) in names
        )
    return with_models(replace(spec, representations=tuple(files), **changes), spec.models)


def with_models(spec: AnalysisSpec, models: Sequence[str]) -> AnalysisSpec:
    """Specification for these models and no others."""
    changed = replace(spec, models=tuple(models))
    return replace(changed, **changed.choices_among(changed.names))
