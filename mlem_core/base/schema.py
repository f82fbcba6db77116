"""The one check of what is read back: JSON has the form that the program gave it, or a sentence."""

from __future__ import annotations

import functools
import json
from typing import Any, TypeVar, cast

from mlem_core.base.errors import InputError
from mlem_core.base.text import short

T = TypeVar("T")

# What is expected, by the kind of pydantic's error; its own words for the others.
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "missing": "it as the program wrote it",
    "string_type": "a text",
    "tuple_type": "a list",
}


def parsed(kind: type[T], data: bytes, what: str) -> T:
    """The value of a dataclass that a JSON document holds.

    Numbers, texts and lists are never taken for each other; entries that the dataclass does not
    have are left alone.

    Parameters
    ----------
    kind : the dataclass
    data : the document
    what : the document in a message, such as "the capsule.json of x.zip"

    Raises
    ------
    InputError
        It is no JSON, or an entry is missing or of another form.
    """
    from pydantic import ValidationError

    try:
        found: T = _adapter(cast("Any", kind)).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise InputError(_sentence(what, dict(first))) from error
    return found


def checked(kind: type[T], value: Any, what: str) -> T:
    """The same of a document that has been read."""
    try:
        data = json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} is nothing that JSON can hold; expected an object.") from error
    return parsed(kind, data, what)


@functools.cache
def _adapter(kind: Any) -> Any:
    # A tenth of a second, which a command that reads nothing back does not take.
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _sentence(what: str, error: dict[str, Any]) -> str:
    if error["type"] == "json_invalid":
        reason = str(error["msg"]).removeprefix("Invalid JSON: ")
        return f"{what} is no JSON ({reason}); expected it as the program wrote it."
    place = ".".join(map(str, error["loc"]))
    where = f"the entry {short(place)} of {what}" if place else what
    words = str(error["msg"]).removeprefix("Input should be ")
    expected = _EXPECTED.get(error["type"], words)
    if error["type"] == "missing":
        return f"{where} is missing; expected {expected}."
    found = short(json.dumps(error["input"], ensure_ascii=False))[1:-1]
    return f"{where} is {found}; expected {expected}."
