"""Step 1, Read: which stimuli, and how their file is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mlem_core.analysis.spec import parameters
from mlem_core.base.errors import InputError
from mlem_core.stimuli import datasets
from mlem_core.stimuli.formats import FORMATS, TABLE, find_format, folder_suffixes
from mlem_core.stimuli.reading.content import DECIMALS, SEPARATORS, ReadAs
from mlem_core.stimuli.roles import TEMPLATE
from mlem_core.stimuli.stimulus_set import StimulusSet
from pages.form import state
from pages.form.draft import FEATURES, Draft, settle
from pages.form.preview import show_preview
from pages.parts import choices, stored
from pages.parts.choices import plain

NO_HEADER = "no row has names of columns"
ENCODINGS = ["utf-8", "utf-16", *(f"windows-125{n}" for n in (2, 0, 1)), "mac-roman", "shift-jis"]
ENCODINGS += ["gb18030"]


def show_reading(draft: Draft) -> None:
    """Draw the step."""
    _choose(draft)
    if draft.error and draft.at == "read":
        st.error(plain(draft.error), icon=":material/error:")
    read_as = draft.table.read_as if draft.table is not None else ReadAs()
    if len(read_as.sheets) > 1:
        _detected("sheet", read_as.sheets, str(read_as.sheet))
    if draft.kind in FORMATS and draft.kind != TABLE.name:
        places = st.columns(2)
        own = [name for name in FORMATS[draft.kind].options if name not in TABLE.options]
        for at, name in enumerate(own):
            with places[at % 2]:
                state.field(name, draft.base)
    show_preview(draft)
    if draft.base is not None:
        _show_notes(draft, draft.base)
    if draft.kind == "table":
        failed = bool(draft.error) and draft.at == "read"
        with st.expander("How the file is read", icon=":material/tune:", expanded=failed):
            _table_choices(draft, read_as)


def _show_notes(draft: Draft, stimuli: StimulusSet) -> None:
    """How the stimuli were read, with a button where a choice changes it."""
    doubts = {doubt.sentence: doubt for doubt in stimuli.doubts}
    for note in stimuli.notes:
        st.caption(f":material/info: {plain(note)}")
        if doubt := doubts.get(note):
            st.button(
                plain(doubt.label),
                key=f"form doubt {doubt.sentence} {draft.name}",
                type="tertiary",
                icon=":material/check:",
                on_click=partial(settle, draft, doubt.option, doubt.values),
            )


def stimuli_uploader() -> None:
    """Draw what takes files; it stays in all steps, as a file on its way to it is lost with it."""
    others = [entry for entry in FORMATS.values() if entry is not TABLE]
    named = "".join(f" or a {entry.name} ({', '.join(entry.suffixes)})" for entry in others)
    state.uploader(
        f"Upload a table (.csv, .tsv, .txt, .xlsx, .parquet, .jsonl){named}",
        "stimuli",
        _take,
        accept_multiple_files=True,
        help="One row a stimulus, and one column with the sentences."
        + "".join(f" Several {suffix} files at once are one set." for suffix in folder_suffixes()),
    )


def _choose(draft: Draft) -> None:
    if state.refused_upload("stimuli"):
        st.button(
            f"Go on with {plain(draft.label)}",
            icon=":material/undo:",
            on_click=partial(st.session_state.pop, "refused stimuli"),
        )
    sets = list(datasets.SETS)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Stimulus set",
            list(dict.fromkeys([*sets, *st.session_state.get("uploaded", ()), draft.name])),
            format_func=lambda name: name.rpartition("/")[2] + (" (built in)" * (name in sets)),
            **choices.bound("form stimuli", draft.name, state.choose_stimuli),
        )
        st.download_button(
            "Template",
            data=TEMPLATE,
            file_name="template.csv",
            icon=":material/download:",
            on_click="ignore",
            help="A CSV of ten words, to be replaced by yours.",
        )


def _take(files: list[Any]) -> None:
    """Keep what was uploaded and choose it, whatever it holds; its problems are named."""
    if len(files) > 1 and not find_format([Path(file.name) for file in files]).reads_folders:
        several = "".join(
            f", or several {suffix} files, which are one set" for suffix in folder_suffixes()
        )
        raise InputError(f"{len(files)} files were uploaded at once; expected one table{several}.")
    name = stored.keep_files(*files)
    st.session_state["uploaded"] = [*st.session_state.get("uploaded", ()), state.stimuli(), name]
    state.choose_stimuli(name)


def _detected(
    name: str,
    known: Sequence[str],
    detected: str,
    label_of: Callable[[str], str] = str,
    **more: Any,
) -> None:
    """A selectbox of a choice that is detected where it is not made; `detected` says as what."""
    described, now = parameters()[name], choices.get_one(name)
    at_first = f"detected: {detected}" if detected else "detected"

    def choose(text: str | None) -> None:
        value = (text or "").strip()
        choices.put(name, [value] if value else None)

    st.selectbox(
        described.label,
        ["", *known, *([now] if now and now not in known else [])],
        format_func=lambda one: label_of(one) if one else at_first,
        help=described.text,
        **choices.bound(f"form {name} {state.stimuli()}", now, choose),
        **more,
    )


def _table_choices(draft: Draft, read_as: ReadAs) -> None:
    text = draft.table is None or read_as.separator is not None
    # Where the stimuli can be used, a note says how an unusual file was read.
    if draft.table is not None and (draft.base is None or read_as.plain):
        st.caption(plain(f"{draft.label} was {read_as.sentence}"))
    first, second = st.columns(2)
    with first:
        if text:
            signs = ("comma", "semicolon", "tab", "bar")
            _detected("sep", signs, SEPARATORS.get(str(read_as.separator), ""))
        _detected("decimal", [*DECIMALS.values()], DECIMALS.get(str(read_as.decimal), ""))
        if text or read_as.sheet is not None:
            offered = [str(number) for number, _ in enumerate(draft.first_rows, 1)]
            detected = "" if read_as.header_row is None else f"row {read_as.header_row}"
            _detected(
                "header_row",
                ["0", *offered],
                detected if read_as.header_row != 0 else NO_HEADER,
                lambda number: f"row {number}" if number != "0" else NO_HEADER,
            )
    with second:
        if text:
            _detected("encoding", ENCODINGS, read_as.encoding_name, accept_new_options=True)
        features = [name for name, role in draft.roles.items() if role in FEATURES]
        marks = [mark for name in features for mark in draft.marks.get(name, [])]
        _detected(
            "na",
            [choices.NOTHING],
            ", ".join(read_as.found or dict.fromkeys(marks)) or "none",
            lambda one: "only empty cells" if one == choices.NOTHING else one,
            accept_new_options=True,
        )
        if "word_index" in draft.roles.values():
            state.field("counts_from")
        state.field("blocks")
