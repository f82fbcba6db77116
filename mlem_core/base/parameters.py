"""How a parameter of an analysis is described, once, for the command line and the form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any

from mlem_core.base.errors import InputError


@dataclass(frozen=True)
class Parameter:
    """How a parameter of an analysis is asked for, on the command line and in the form.

    Attributes
    ----------
    label : its name in the form
    help : what it is; a function where that depends on what is registered
    noun : what a message calls a value, where that is not the field's name
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


def asked(
    default: Any,
    label: str,
    help: str | Callable[[], str],
    *,
    kw_only: bool = False,
    **more: Any,
) -> Any:
    """A field of a dataclass with its description; `more` as of `Parameter`."""
    parameter = Parameter(label, help, **more)
    return field(default=default, kw_only=kw_only, metadata={"parameter": parameter})


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

    Raises
    ------
    InputError
        A text that the command line would not take.
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


def in_text(value: Any) -> str:
    """One of several values of a field as the command line reads it: "brain=brain.npz"."""
    if not isinstance(value, tuple):
        return str(value)
    name, *rest = (",".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return "=".join((name, *rest))


def names_in(asked: str | Iterable[str]) -> tuple[str, ...]:
    """The names that are asked for, as a list or as the command line's text "a,b"."""
    if isinstance(asked, str):
        return parse_names(asked)
    if not isinstance(asked, Iterable):
        raise InputError(f"found {asked!r} for names; expected a list of them, or 'a,b'.")
    return tuple(asked)


def parse_names(text: str) -> tuple[str, ...]:
    """("a", "b") of "a, b"."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
