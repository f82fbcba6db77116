"""Files of representations: added with their check against the stimuli, renamed, taken away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import choices, reading, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.form.draft import Draft

MOST_MB = 1_000
MOST_NAMED = 6


@dataclass(frozen=True)
class Looked:
    """A file as it was found: its layers by number, what is wrong with it ("" for nothing), whether
    its arrays seem to be distances, and whether it has to be said what its first column is."""

    layers: dict[int, str]
    notes: tuple[str, ...] = ()
    problem: str = ""
    seem_distances: bool = False
    asks: bool = False


def chosen() -> list[tuple[str, str]]:
    """Name and upload of each file."""
    found = (one.partition("=") for one in choices.get("files") or [])
    return [(name, upload) for name, equals, upload in found if equals]


def distances() -> list[str]:
    """The names of the files whose arrays are distances."""
    names = [name for name, _ in chosen()]
    return [name for name in choices.get("precomputed") or [] if name in names]


def first_columns() -> dict[str, str]:
    """What the first column of a file is, by its name, where that is said."""
    from mlem_core.models.array_files import FIRST_COLUMN

    names = [name for name, _ in chosen()]
    found = (one.rpartition("=") for one in choices.get("first_column") or [])
    return {name: choice for name, _, choice in found if name in names and choice in FIRST_COLUMN}


def _put(
    files: list[tuple[str, str]], precomputed: list[str], first_column: dict[str, str]
) -> None:
    choices.put("files", [f"{name}={upload}" for name, upload in files])
    choices.put("precomputed", precomputed)
    choices.put("first_column", [f"{name}={choice}" for name, choice in first_column.items()])


def _look(path: str, n_stimuli: int, **how: bool | str) -> Looked:
    try:
        found = reading.read("arrays", path=path, n_stimuli=n_stimuli, **how)
    except InputError as error:
        return Looked({}, problem=str(error))
    return Looked(found.names, found.notes, found.asks, found.seem_distances, bool(found.asks))


def looked(draft: Draft, distance: str) -> dict[str, Looked]:
    """What each file holds, by its name; nothing while the stimuli cannot be used."""
    from mlem_core.pairs.distances import PRECOMPUTED, distance_named

    found: dict[str, Looked] = {}
    if draft.stimuli is None:
        return found
    for name, upload in chosen():
        try:
            path = str(stored.upload_path(upload))
        except InputError as error:
            found[name] = Looked({}, problem=str(error))
        else:
            found[name] = _look(
                path,
                len(draft.stimuli),
                of_distances=distance == PRECOMPUTED or name in distances(),
                repeated=distance_named(distance).repeated,
                first_column=first_columns().get(name, ""),
            )
    return found


def show(draft: Draft, found: dict[str, Looked]) -> None:
    """Draw what is added, each with its check, and what takes more."""
    times = st.session_state.setdefault("files taken", 0)
    st.file_uploader(
        "Representations from a file (.npz, .npy, .safetensors, .csv)",
        accept_multiple_files=True,
        key=f"representations {times}",
        on_change=partial(_take, f"representations {times}", draft),
        max_upload_size=stored.largest_upload(MOST_MB),
        help="Makes any system a model, such as a brain recording: an array a layer, of shape "
        "(stimuli, units), rows in the order of the stimuli, under a name of your own (`V1`) or "
        "`layer_00`, `layer_01` …; or one layer as .npy or CSV. Or repetitions, (repetitions, "
        "stimuli, units); or distances, (stimuli, stimuli).",
    )
    if st.session_state.get("refused file"):
        st.error(plain(st.session_state["refused file"]), icon=":material/error:")
    for name, upload in chosen():
        with st.container(border=True, gap="xsmall"):
            _line(name, upload, found.get(name))


def _line(name: str, upload: str, looked: Looked | None) -> None:
    key = f"file name {name}"
    st.session_state[key] = name
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Name",
            key=key,
            on_change=lambda: _rename(name, st.session_state[key]),
            help="What the figures call it.",
        )
        st.toggle(
            "distances",
            value=name in distances(),
            key=f"file distances {name} {name in distances()}",
            on_change=partial(_turn, name),
            help="Its arrays are distances between every two stimuli, and no representations; they "
            "are compared with the distances in the models.",
        )
        if name in first_columns() or (looked is not None and looked.asks):
            _first_column(name)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap=None):
            _said(upload, looked)
        st.button(
            "Take away",
            key=f"file away {name}",
            icon=":material/close:",
            type="tertiary",
            on_click=partial(_take_away, name),
            help="The analysis goes without this file.",
        )


def _first_column(name: str) -> None:
    from mlem_core.models.array_files import FIRST_COLUMN

    key, said = f"file first column {name}", first_columns()
    st.session_state[key] = said.get(name)
    st.selectbox(
        "First column",
        list(FIRST_COLUMN),
        index=None,
        key=key,
        format_func=FIRST_COLUMN.__getitem__,
        placeholder="Row numbers or a unit?",
        on_change=lambda: _put(
            chosen(), distances(), {**first_columns(), name: st.session_state[key]}
        ),
        help="It counts the rows or has no name, as the index that pandas writes.",
    )


def _said(upload: str, looked: Looked | None) -> None:
    """What the check of a file found."""
    file = plain(upload.rpartition("/")[2])
    if looked is None:
        st.caption(f"{file}: checked as soon as the stimuli can be used.")
    elif looked.problem:
        st.error(plain(looked.problem), icon=":material/error:")
    else:
        names = list(looked.layers.values())
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        shown = plain(", ".join(names[:MOST_NAMED]) + more)
        layers = f"layer{'s' if len(names) > 1 else ''} {shown}"
        st.caption(f":material/check: {file}: {layers}")
        for note in looked.notes:
            st.warning(plain(note), icon=":material/warning:")


def _take(key: str, draft: Draft) -> None:
    """Add what was uploaded, whatever it holds: what is wrong is said in its line."""
    from mlem_core.tasks import analyses

    files, precomputed = chosen(), distances()
    st.session_state.pop("refused file", None)
    for one in st.session_state[key]:
        try:
            path = analyses.keep_upload(one.getvalue(), one.name, stored.store())
        except InputError as error:
            st.session_state["refused file"] = str(error)
            continue
        name = _own_name(Path(one.name).stem, [name for name, _ in files])
        files.append((name, stored.upload_name(path)))
        if draft.stimuli is None:
            continue
        # What is wrong with it is said in its line.
        if _look(str(path), len(draft.stimuli)).seem_distances:
            precomputed.append(name)
    _put(files, precomputed, first_columns())
    # An empty uploader for the next one: what is added stands below it.
    st.session_state["files taken"] += 1


def _own_name(name: str, taken: list[str]) -> str:
    # An equals sign parts the name from the file in the URL.
    name = name.replace("=", " ").strip() or "file"
    number, new = 1, name
    while new in taken:
        number += 1
        new = f"{name} {number}"
    return new


def _rename(name: str, asked: str) -> None:
    files = chosen()
    new = _own_name(asked, [other for other, _ in files if other != name])
    _put(
        [(new if one == name else one, upload) for one, upload in files],
        [new if one == name else one for one in distances()],
        {new if one == name else one: choice for one, choice in first_columns().items()},
    )


def _turn(name: str) -> None:
    now = distances()
    without = [one for one in now if one != name]
    choices.put("precomputed", without if name in now else [*now, name])


def _take_away(name: str) -> None:
    _put(
        [one for one in chosen() if one[0] != name],
        [one for one in distances() if one != name],
        {one: choice for one, choice in first_columns().items() if one != name},
    )
