"""Files of representations: added with their check against the stimuli, renamed, taken away."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.analysis.grouped import EVERY
from mlem_core.base.errors import InputError
from pages.form import state
from pages.parts import choices, stored
from pages.parts.choices import plain

if TYPE_CHECKING:
    from mlem_core.tasks.reading import FoundArrays
    from pages.form.draft import Draft

MOST_MB = 1_000
MOST_NAMED = 6
# What can be said of a file by its name, beside that it holds distances.
SAID = ("first_column", "subjects", "axes")


def chosen_files() -> dict[str, str]:
    """The upload of each file, by its name."""
    return state.pairs("files")


def distances() -> list[str]:
    """The names of the files whose arrays are distances."""
    return [name for name in choices.get("precomputed") or [] if name in chosen_files()]


def said(of: str) -> dict[str, str]:
    """One of `SAID` of each file, by its name, where it is given."""
    files = chosen_files()
    return {name: value for name, value in state.pairs(of).items() if name in files}


def _say(of: str, name: str, value: str | None) -> None:
    others = {one: value for one, value in said(of).items() if one != name}
    choices.put(of, state.texts_of(others | ({name: value} if value else {})))


def _call(name: str, new: str) -> None:
    """Give a file another name; without one it is taken away."""

    def renamed(given: dict[str, str]) -> dict[str, str]:
        called = {new if one == name else one: value for one, value in given.items()}
        return {one: value for one, value in called.items() if one}

    choices.put_all(
        {
            "files": state.texts_of(renamed(chosen_files())),
            "precomputed": list(renamed(dict.fromkeys(distances(), ""))),
            **{of: state.texts_of(renamed(said(of))) for of in SAID},
        }
    )


def _look(upload: str, n_stimuli: int, **how: bool | str) -> FoundArrays:
    from mlem_core.tasks.reading import FoundArrays

    try:
        path = str(stored.upload_path(upload))
        content: FoundArrays = stored.read("arrays", path=path, n_stimuli=n_stimuli, **how)
    except InputError as error:
        return FoundArrays({}, (), False, str(error))
    return content


def file_contents(draft: Draft, distance: str) -> dict[str, FoundArrays]:
    """Contents of each file, by its name; none while the stimuli cannot be used."""
    from mlem_core.pairs.distances import PRECOMPUTED, distance_named

    if draft.stimuli is None:
        return {}
    return {
        name: _look(
            upload,
            len(draft.stimuli),
            of_distances=distance == PRECOMPUTED or name in distances(),
            repeated=distance_named(distance).repeated,
            first_column=said("first_column").get(name, ""),
            subject=said("subjects").get(name, ""),
        )
        for name, upload in chosen_files().items()
    }


def show_files(draft: Draft, contents: dict[str, FoundArrays]) -> None:
    """Draw what is added, each with its check, and what takes more."""
    state.uploader(
        "Representations from a file (.npz, .npy, .safetensors, .mat, .csv)",
        "representations",
        partial(_take, draft),
        most_mb=MOST_MB,
        accept_multiple_files=True,
        help="Makes any system a model, such as a brain recording. Each layer is an array of shape "
        "(stimuli, units), named as you like (`V1`) or `layer_00`, `layer_01` …; one layer may be "
        "a .npy or CSV. Repetitions: (repetitions, stimuli, units). Distances: (stimuli, stimuli). "
        "Several subjects: one axis more, first.",
    )
    state.say_refused("representations")
    for name, upload in chosen_files().items():
        with st.container(border=True, gap="xsmall"):
            _line(name, upload, contents.get(name))


def _line(name: str, upload: str, content: FoundArrays | None) -> None:
    others = [other for other in chosen_files() if other != name]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Name",
            help="What the figures call it.",
            **choices.bound(
                f"file name {name}",
                name,
                lambda typed: _call(name, state.own_name(typed, others, "file")),
            ),
        )
        st.toggle(
            "distances",
            help="Its arrays are distances between every two stimuli, and no representations; they "
            "are compared with the distances in the models.",
            **choices.bound(f"file distances {name}", name in distances(), partial(_turn, name)),
        )
        st.toggle(
            "subjects",
            help="Arrays are (subjects, stimuli, units): each subject is a system, and all are a "
            "group with a noise ceiling. Distances of several subjects are known as such.",
            **choices.bound(
                f"file subjects {name}",
                name in said("subjects"),
                lambda on: _say("subjects", name, EVERY if on else None),
            ),
        )
        st.text_input(
            "Axis",
            placeholder="layer",
            help="What its layers are: `region`, or `time:ms` for names such as 120 ms, which are "
            "then in the order of their numbers.",
            **choices.bound(
                f"file axis {name}", said("axes").get(name, ""), partial(_say, "axes", name)
            ),
        )
        if name in said("first_column") or (content is not None and content.asks):
            _first_column(name)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap=None):
            _said(upload, content)
        st.button(
            "Take away",
            key=f"file away {name}",
            icon=":material/close:",
            type="tertiary",
            on_click=partial(_call, name, ""),
            help="The analysis goes without this file.",
        )


def _turn(name: str, of_distances: bool) -> None:
    others = [one for one in distances() if one != name]
    choices.put("precomputed", [*others, *([name] if of_distances else [])])


def _first_column(name: str) -> None:
    from mlem_core.models.array_files import FIRST_COLUMN

    st.selectbox(
        "First column",
        list(FIRST_COLUMN),
        index=None,
        format_func=FIRST_COLUMN.__getitem__,
        placeholder="Row numbers or a unit?",
        help="It counts the rows or has no name, as the index that pandas writes.",
        **choices.bound(
            f"file first column {name}",
            said("first_column").get(name),
            partial(_say, "first_column", name),
        ),
    )


def _said(upload: str, content: FoundArrays | None) -> None:
    """Findings of the check of a file."""
    file = plain(upload.rpartition("/")[2])
    if content is None:
        st.caption(f"{file}: checked as soon as the stimuli can be used.")
    elif content.problem:
        st.error(plain(content.problem), icon=":material/error:")
    else:
        names = list(content.names.values())
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        shown = plain(", ".join(names[:MOST_NAMED]) + more)
        layers = f"layer{'s' if len(names) > 1 else ''} {shown}"
        st.caption(f":material/check: {file}: {layers}")
        for note in content.notes:
            st.warning(plain(note), icon=":material/warning:")


def _take(draft: Draft, files: list[Any]) -> None:
    """Add what was uploaded, whatever it holds; its line names its problems."""
    from mlem_core.tasks import analyses

    kept, precomputed = chosen_files(), distances()
    refused: InputError | None = None
    for file in files:
        try:
            path = analyses.keep_upload(file.getvalue(), file.name, stored.store())
        except InputError as error:
            refused = error
            continue
        name = state.own_name(Path(file.name).stem, kept, "file")
        kept[name] = stored.upload_name(path)
        if draft.stimuli is not None and _look(kept[name], len(draft.stimuli)).seem_distances:
            precomputed.append(name)
    choices.put_all({"files": state.texts_of(kept), "precomputed": precomputed})
    if refused is not None:
        raise refused
