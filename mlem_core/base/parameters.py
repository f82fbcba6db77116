"""Descriptions of parameters, one for both command line and form, and registries of choices."""

from __future__ import annotations

import csv
import importlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Protocol, TypeVar

from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.text import short

# The least and the most that a seed may be.
SEEDS = (0, 2**32 - 1)


@dataclass(frozen=True)
class Parameter:
    """Description of a parameter of an analysis, for the command line and the form.

    Attributes
    ----------
    label : its name in the form
    help : what it is, in sentences; a function where that depends on what is registered
    noun : what a message calls a value, where that is not the field's name
    choices : gives the values that can be chosen, and of each, where there is one, its entry or its
        label; called each time, as others may be registered
    metavar : what the command line and an empty field show for a value; "" shows the choices
    parse : the value that a text stands for; raises InputError
    option : its name on the command line, where that is not its own
    repeated : whether the option may be given several times, a value each time
    range : the least and the most that a whole number may be
    section : of the options on the command line: "stimuli", "models", "files" (which are among
        those of the models), "groups of models"; else of the analysis
    """

    label: str
    help: str | Callable[[], str]
    noun: str = ""
    choices: Callable[[], Iterable[str]] | None = None
    metavar: str = ""
    parse: Callable[[str], Any] = str
    option: str = ""
    repeated: bool = False
    range: tuple[int, int] | None = None
    section: str = "analysis"

    @property
    def text(self) -> str:
        """Help text, in sentences."""
        return self.help() if callable(self.help) else self.help

    @property
    def labels(self) -> dict[str, str]:
        """Labels on screens of the values that can be chosen, by the value."""
        values = () if self.choices is None else self.choices()
        if not isinstance(values, Mapping):
            return {value: value for value in values}
        return {value: str(getattr(entry, "label", entry)) for value, entry in values.items()}


def option(
    default: Any,
    label: str,
    help: str | Callable[[], str],
    *,
    pair: Callable[[str], Any] | None = None,
    last: bool = False,
    **more: Any,
) -> Any:
    """A field of a dataclass with its description; `more` as of `Parameter`.

    Parameters
    ----------
    pair : of a field that holds names and a value of each, given one at a time: see `parse_pair`,
        whose form is the metavar
    last : as of `parse_pair`
    """
    if pair is not None:
        more |= {"parse": parse_pair(more["metavar"], pair, last=last), "repeated": True}
    return field(default=default, metadata={"parameter": Parameter(label, help, **more)})


def check_fields(values: Any) -> None:
    """Raise InputError for a field of a dataclass whose value is no choice or out of its range."""
    for each in fields(values):
        described: Parameter = each.metadata["parameter"]
        value = getattr(values, each.name)
        if described.choices is not None and value not in (choices := described.choices()):
            raise unknown(described.noun or each.name, value, choices)
        for number in value if isinstance(value, tuple) else (value,):
            least, most = described.range or (number, number)
            if number is not None and not least <= number <= most:
                raise InputError(
                    f"found {short(str(number), 30)} for {each.name.replace('_', ' ')}; expected a "
                    f"whole number of at least {least:,} and at most {most:,}."
                )


def parse_pair(
    form: str, value: Callable[[str], Any] = str, *, last: bool = False
) -> Callable[[str], tuple[str, Any]]:
    """A parser of texts such as "brain=brain.npz", which gives ("brain", "brain.npz").

    It raises InputError for a text of another form.

    Parameters
    ----------
    form : such as NAME=FILE, for its message
    value : gives the value of what follows the equals sign; a ValueError says that it has none
    last : whether the last equals sign parts the two, where a name rather than a value may hold one
    """

    def parse(text: str) -> tuple[str, Any]:
        name, _, rest = text.rpartition("=") if last else text.partition("=")
        try:
            parsed = value(rest)
        except ValueError:
            parsed = None
        if not name.strip() or parsed in (None, "", ()):
            raise InputError(f"{short(text)} is not of the form {form}")
        return name.strip(), parsed

    return parse


def frozen(value: Any) -> Any:
    """A value of a field as it can be a key: lists and tables of two columns as tuples."""
    if isinstance(value, Mapping):
        value = list(value.items())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def several(asked: Field[Any], value: Any) -> Any:
    """The value of a field that holds several, a tuple, of what was given in its place.

    A text is read as the command line reads it: "minilm" is one model, "tense,number" are two
    features, "0,3" two layers, "brain=brain.npz" is a file and its name. A number is one layer.
    The value of a field that does not hold several is left as it is.

    Raises InputError: a text that the command line would not take.
    """
    # Annotations are texts: see `from __future__ import annotations` where the fields are.
    if not str(asked.type).startswith("tuple"):
        return value
    described: Parameter = asked.metadata["parameter"]
    if isinstance(value, str):
        value = (value,) if described.repeated else described.parse(value)
    elif hasattr(value, "tolist"):
        value = value.tolist()  # an array, whose numbers JSON would not take
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        value = tuple(value)
    elif value is not None and not isinstance(value, Mapping):
        value = (value,)
    if described.repeated and not isinstance(value, Mapping):
        value = tuple(described.parse(each) if isinstance(each, str) else each for each in value)
    return frozen(value)


def option_text(value: Any) -> str:
    """Text of one of a field's values as the command line reads it: "brain=brain.npz"."""
    if not isinstance(value, tuple):
        return str(value)
    name, *rest = (
        join_names(map(str, part)) if isinstance(part, tuple) else str(part) for part in value
    )
    return "=".join((name, *rest))


def split_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """The given names, as a list or as the command line's text "a,b"."""
    if isinstance(names, str):
        return parse_names(names)
    if not isinstance(names, Iterable):
        raise InputError(f"found {names!r} for names; expected a list of them, or 'a,b'.")
    return tuple(names)


def parse_names(text: str) -> tuple[str, ...]:
    """("a", "b") of "a, b"; a name with a comma stands in quotation marks.

    A new line separates names as a comma does. Raises InputError: it cannot be read so.
    """
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True))
    except csv.Error as error:
        raise InputError(
            f"found {short(text)} ({error}); expected names with commas between them."
        ) from error
    return tuple(part.strip() for line in lines for part in line if part.strip())


def join_names(names: Iterable[str]) -> str:
    """The text that `parse_names` reads to these names."""
    line = io.StringIO()
    # Names with a character of the line's end are quoted.
    csv.writer(line, lineterminator="\r\n").writerow(names)
    return line.getvalue().removesuffix("\r\n")


class Entry(Protocol):
    """Entry of a registry."""

    @property
    def name(self) -> str:
        """Name that users give."""
        ...


E = TypeVar("E", bound=Entry)


class Registry(MutableMapping[str, E]):
    """The entries of one kind, by their names and in the order of their registration.

    Parameters
    ----------
    kind : what error messages call an entry, such as "distance"
    modules : a function of the kind that gives the names of further modules which register entries;
        they are imported at the first look-up
    """

    def __init__(self, kind: str, modules: Callable[[str], Iterable[str]] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, E] = {}
        self._modules = modules
        self._lock = threading.RLock()

    def _loaded(self) -> dict[str, E]:
        """All entries, with those of the further modules."""
        if self._modules is not None:
            with self._lock:
                # These modules may look entries up while they are imported.
                modules, self._modules = self._modules, None
                for module in () if modules is None else modules(self.kind):
                    importlib.import_module(module)
        return self._entries

    def __getitem__(self, name: str) -> E:
        return self._loaded()[name]

    def __setitem__(self, name: str, entry: E) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._loaded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def register(self, entry: E) -> None:
        """Make an entry known by its name to everything that asks for one.

        Raises ValueError: another one has this name, by which what is kept in the store is found.
        """
        if entry.name in self._entries:
            raise ValueError(f"there is a registered {self.kind} {entry.name!r} already.")
        self._entries[entry.name] = entry

    def named(self, name: str) -> E:
        """The entry of this name; raises InputError, with the choices, where there is none."""
        check_choice(self.kind, name, self)
        return self[name]
