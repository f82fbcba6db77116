"""What the form knows of the stimuli: the choices in the URL as a `StimulusSource`, and back.

The state of `pages.parts.choices` is the truth; widgets are drawn from it and write into it, so
that a step which is not on the screen loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import choices, reading, stored

if TYPE_CHECKING:
    from mlem_core.analysis.source import StimulusSource

NONE = choices.NOTHING
STEPS = ("read", "roles", "models")
# What is chosen for one stimulus set and means nothing in another.
OF_STIMULI = (
    "sep", "encoding", "decimal", "na", "sheet", "roles", "level", "sample", "balance",
    "sample_seed", "add", "language", "bins", "vectors", "rdms", "values",
)  # fmt: skip
_OF_TABLES = ("sep", "encoding", "decimal", "na", "sheet")
_OF_TREEBANKS = ("encoding", "level", "sample", "balance", "sample_seed")


def stimuli() -> str:
    """The chosen stimuli: a built-in set, or how the URL names an upload."""
    from mlem_core.data import datasets

    return choices.get_one("stimuli", next(iter(datasets.SETS)))


def step() -> str:
    """The step that is on the screen."""
    chosen = choices.get_one("step", STEPS[0])
    return chosen if chosen in STEPS else STEPS[0]


def go_to(name: str) -> None:
    """Show a step."""
    choices.put("step", None if name == STEPS[0] else [name])


def choose_stimuli(name: str) -> None:
    """Choose other stimuli; how the former ones are read is kept for when they are chosen again."""
    remembered = st.session_state.setdefault("read as", {})
    if name == stimuli():
        return
    remembered[stimuli()] = {one: choices.get(one) for one in OF_STIMULI}
    choices.put("stimuli", [name])
    for one in OF_STIMULI:
        choices.choose_now(one, remembered.get(name, {}).get(one))


def kind(name: str) -> str:
    """ "set" (built in), "treebank" or "table"."""
    from mlem_core.data import datasets
    from mlem_core.data.treebank import SUFFIX

    if name in datasets.SETS:
        return "set"
    path = stored.upload_path(name)
    return "treebank" if path.is_dir() or path.suffix.lower() == SUFFIX else "table"


def read_as() -> dict[str, Any]:
    """The fields of `StimulusSource` that say which stimuli, and how their file is read.

    Raises
    ------
    InputError
        The upload is not on this machine; the URL holds what cannot be.
    """
    from mlem_core.analysis.source import StimulusSource
    from mlem_core.analysis.spec import parameters
    from mlem_core.data.reading.content import parse_marks

    name = stimuli()
    its = kind(name)
    fields: dict[str, Any] = {
        "stimuli": name if its == "set" else str(stored.upload_path(name)),
    }
    for one in {"table": _OF_TABLES, "treebank": _OF_TREEBANKS}.get(its, ()):
        texts = choices.get(one)
        if not texts:
            continue
        if one == "balance":
            fields[one] = tuple(texts)
        elif texts == [NONE]:
            fields[one] = ()
        elif one == "na":
            fields[one] = parse_marks(",".join(texts))
        else:
            try:
                fields[one] = parameters()[one].parse(texts[0])
            except ValueError as error:
                raise InputError(f"found {one}={texts[0]!r} in the address.") from error
    return {
        key: value for key, value in fields.items() if value != getattr(StimulusSource, key, None)
    }


def pairs(name: str) -> dict[str, str]:
    """A part of the state whose values are texts "column=value", by column."""
    found = (one.rpartition("=") for one in choices.get(name) or [])
    return {column: value for column, equals, value in found if equals and column}


def put_pairs(name: str, values: Mapping[str, object]) -> None:
    """Set such a part of the state."""
    choices.put(name, [f"{column}={value}" for column, value in values.items()])


def vectors() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Name and columns of each vector."""
    found = (one.partition("=") for one in choices.get("vectors") or [])
    return tuple(
        (name, tuple(filter(None, columns.split(",")))) for name, equals, columns in found if equals
    )


def rdm_uploads() -> dict[str, str]:
    """The upload of each feature that is given as an RDM, by its name."""
    found = (one.partition("=") for one in choices.get("rdms") or [])
    return {name: file for name, equals, file in found if equals and name}


def rdms() -> tuple[tuple[str, str], ...]:
    """Name and file of each RDM; InputError where a file is not on this machine."""
    return tuple((name, str(stored.upload_path(file))) for name, file in rdm_uploads().items())


def pick(
    name: str,
    options: Sequence[str],
    detected: str,
    label_of: Callable[[str], str] = str,
    **more: Any,
) -> None:
    """A selectbox of a choice that is detected where it is not made; `detected` says as what."""
    from mlem_core.analysis.spec import parameters

    key = f"form {name} {stimuli()}"
    now = choices.get_one(name)
    st.session_state[key] = now
    found = f"detected: {detected}" if detected else "detected"

    def remember() -> None:
        chosen = (st.session_state[key] or "").strip()
        choices.put(name, [chosen] if chosen else None)

    described = parameters()[name]
    st.selectbox(
        described.label,
        ["", *options, *([now] if now and now not in options else [])],
        format_func=lambda one: label_of(one) if one else found,
        key=key,
        on_change=remember,
        help=described.text,
        **more,
    )


# The same object as long as nothing changes, which remembers its digest.
@stored.kept(8)
def _selected(key: str, features: tuple[str, ...], _stimuli: Any) -> Any:
    return _stimuli.select(features)


def load(source: StimulusSource, features: tuple[str, ...] | None = None) -> Any:
    """The `StimulusSet` of a source, with all or some features, read once for a store.

    Raises
    ------
    InputError
        As `mlem_core.tasks.reading.read`.
    """
    from dataclasses import asdict

    asked = asdict(source)
    stimuli = reading.read("stimuli", **asked)
    if features is None:
        return stimuli
    return _selected(json.dumps(asked, sort_keys=True), features, stimuli)
