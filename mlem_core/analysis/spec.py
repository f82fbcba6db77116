"""What an analysis is: everything that decides what it gives, and how each of it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlem_core.analysis.transforms import POSITIONS, UNITS
from mlem_core.base.errors import InputError, unknown
from mlem_core.data import datasets
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import read_csv
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.models.extraction import ExtractionOptions
from mlem_core.models.loading import DEVICES, DTYPES
from mlem_core.models.registry import packaged
from mlem_core.models.tokens import POOLINGS, SPECIAL_TOKENS
from mlem_core.pairs.distances import DISTANCES, METRICS, PRECOMPUTED
from mlem_core.pairs.patterns import MISSING


@dataclass(frozen=True)
class Parameter:
    """How a parameter of an analysis is asked for, on the command line and in the form.

    Attributes
    ----------
    label : its name in the form
    help : what it is; a function where that depends on what is registered
    noun : what a message calls a value, where only `choices` can be chosen
    choices : gives the values that can be chosen; asked each time, as others may be registered
    metavar : what the command line shows for a value; "" shows the choices
    parse : the value that a text on the command line stands for; raises InputError
    option : its name on the command line, where that is not its own
    repeated : whether the option may be given several times, a value each time
    """

    label: str
    help: str | Callable[[], str]
    noun: str = ""
    choices: Callable[[], Iterable[str]] | None = None
    metavar: str = ""
    parse: Callable[[str], Any] = str
    option: str = ""
    repeated: bool = False


def parse_names(text: str) -> tuple[str, ...]:
    """("a", "b") of "a, b"."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in parse_names(text)}))
    except ValueError:
        raise InputError(f"{text!r} is not a list of layer numbers such as 0,3,6") from None


def _parse_named_file(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"{text!r} is not of the form NAME=FILE")
    return name, path


def _asked(
    label: str, help: str | Callable[[], str], noun: str = "", **more: Any
) -> dict[str, Parameter]:
    return {"parameter": Parameter(label, help, noun, **more)}


@dataclass(frozen=True)
class AnalysisSpec:
    """Everything that decides what an analysis gives; `parameter` describes each of its fields.

    None for `layers` and `features` is all of them; `representations` are (name, path) of files
    that stand for models.
    """

    stimuli: str = field(
        default="probing",
        metadata=_asked(
            "Stimulus set", "a stimulus CSV or a built-in set", metavar="FILE.csv|NAME"
        ),
    )
    models: tuple[str, ...] = field(
        default=(),
        metadata=_asked(
            "Models",
            lambda: (
                f"{', '.join(sorted(packaged()))}, a hub id or a local folder; "
                "may be given several times"
            ),
            option="model",
            metavar="NAME",
            repeated=True,
        ),
    )
    representations: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=_asked(
            "Representations",
            ".npz or .safetensors with layer_00, layer_01, ..., or a .csv of one layer; may be "
            "given several times",
            metavar="NAME=FILE",
            parse=_parse_named_file,
            repeated=True,
        ),
    )
    layers: tuple[int, ...] | None = field(
        default=None,
        metadata=_asked("Layers", "default: all", metavar="0,3,6", parse=_parse_layers),
    )
    features: tuple[str, ...] | None = field(
        default=None,
        metadata=_asked("Features", "default: all", metavar="a,b", parse=parse_names),
    )
    ordered: tuple[str, ...] = field(
        default=(),
        metadata=_asked(
            "Ordered features",
            "features that differ by how far apart their values are; default: the numeric ones",
            metavar="a,b",
            parse=parse_names,
        ),
    )
    nominal: tuple[str, ...] = field(
        default=(),
        metadata=_asked(
            "Nominal features",
            "features that are equal or not, though they are numbers",
            metavar="a,b",
            parse=parse_names,
        ),
    )
    missing: str = field(
        default="ignore",
        metadata=_asked(
            "Missing values",
            "a missing value differs from none (ignore, the default), or is a value of its own "
            "(level)",
            "policy for missing values",
            choices=lambda: MISSING,
        ),
    )
    estimator: str = field(
        default="ridge",
        metadata=_asked(
            "Estimator",
            "fits the distances (ridge, the default) or their ranks (ridge-rank), or looks for "
            "the highest rank correlation of a metric (spearman) or with weights of any sign "
            "(frrsa)",
            "estimator",
            choices=lambda: ESTIMATORS,
        ),
    )
    interactions: bool = field(
        default=False, metadata=_asked("Interactions", "weigh products of two features too")
    )
    distance: str = field(
        default="euclidean",
        metadata=_asked(
            "Distance of representations",
            "precomputed: the arrays of the representations files are distances",
            "distance",
            choices=lambda: DISTANCES,
        ),
    )
    folds: int = field(
        default=5,
        metadata=_asked("Folds", "of the cross-validation; default: 5", metavar="N", parse=int),
    )
    seed: int = field(
        default=0,
        metadata=_asked("Seed", "of the folds and of draws; default: 0", metavar="N", parse=int),
    )
    device: str = field(
        default="auto",
        metadata=_asked(
            "Device",
            "where models are run and pairs compared; auto (the default) takes a GPU if there is "
            "one",
            "device",
            choices=lambda: DEVICES,
        ),
    )
    dtype: str = field(
        default="float32",
        metadata=_asked(
            "Numbers of the models",
            "numbers that models compute with; default: float32",
            "dtype",
            choices=lambda: DTYPES,
        ),
    )
    special_tokens: str = field(
        default="model",
        metadata=_asked(
            "Start and end tokens",
            "start and end tokens of a sentence: as the model's tokenizer adds them, none, or a "
            "start token in any case",
            "choice of special tokens",
            choices=lambda: SPECIAL_TOKENS,
        ),
    )
    pooling: str = field(
        default="standard",
        metadata=_asked(
            "Pooling",
            "what stands for a stimulus: standard (a word's last sub-token, the mean of a "
            "sentence), mean (of a word's sub-tokens) or last (token of a sentence)",
            "pooling",
            choices=lambda: POOLINGS,
        ),
    )
    positions: str = field(
        default="all",
        metadata=_asked(
            "Positions",
            "without-first leaves out the words at position 0",
            "choice of positions",
            choices=lambda: POSITIONS,
        ),
    )
    units: str = field(
        default="raw",
        metadata=_asked(
            "Units",
            "of a layer: as they are (raw, the default), each with variance 1, or without those "
            "of outlying variance",
            "choice of units",
            choices=lambda: UNITS,
        ),
    )

    @property
    def extraction(self) -> ExtractionOptions:
        """How hidden states are taken from the models."""
        return ExtractionOptions(self.special_tokens, self.pooling, self.dtype, self.device)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AnalysisSpec:
        """What `to_dict` gave; an unknown entry is an error."""
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise unknown("entry of an analysis", name, names)

        def frozen(value: Any) -> Any:
            return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value

        return cls(**{name: frozen(value) for name, value in values.items()})

    def check(self) -> None:
        """Raise InputError for a choice that does not exist, before anything is computed."""
        for name, described in parameters().items():
            value = getattr(self, name)
            if described.choices is not None and value not in described.choices():
                raise unknown(described.noun, value, described.choices())
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
                f"out, or choose one of {', '.join(METRICS)}."
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
        if self.stimuli in datasets.SETS:
            return datasets.load(self.stimuli).with_kinds(self.ordered, self.nominal)
        if not Path(self.stimuli).exists() and not self.stimuli.lower().endswith(".csv"):
            raise unknown("stimulus set", self.stimuli, [*datasets.SETS, "the path of a CSV"])
        return read_csv(Path(self.stimuli), ordered=self.ordered, nominal=self.nominal)


def parameters() -> dict[str, Parameter]:
    """How each field of an `AnalysisSpec` is asked for, in the order of a form."""
    return {each.name: each.metadata["parameter"] for each in fields(AnalysisSpec)}


def parameter(name: str) -> Parameter:
    """How one field of an `AnalysisSpec` is asked for."""
    return parameters()[name]
