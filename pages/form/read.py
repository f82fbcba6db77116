"""Step 1, Read: which stimuli, and how their file is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.analysis.spec import parameters
from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from mlem_core.extending import panels, resolve
from mlem_core.stimuli import datasets
from mlem_core.stimuli.formats import FORMATS, TABLE, find_format, folder_suffixes
from mlem_core.stimuli.reading.content import DECIMALS, SEPARATORS, ReadAs
from mlem_core.stimuli.roles import TEMPLATE, parse_role
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.table_warnings import Doubt
from pages.form import state
from pages.form.draft import FEATURES, Draft, change_roles
from pages.parts import choices, stored
from pages.parts.choices import plain

LEVELS = {"word": "words in their sentences", "sentence": "whole sentences"}
PREVIEW = 8
ENCODINGS = (
    "utf-8", "utf-16", "windows-1252", "windows-1250", "windows-1251", "mac-roman", "shift-jis",
    "gb18030",
)  # fmt: skip


def show_reading(draft: Draft) -> None:
    """Draw the step."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        _choose(draft)
    with right:
        st.subheader("Preview")
        if draft.error and draft.at == "read":
            st.error(plain(draft.error), icon=":material/error:")
        if draft.kind == "table":
            _table_choices(draft)
        elif draft.kind == "set":
            st.caption("A built-in set, read as it is: there is nothing to decide.")
        for panel in panels("new"):
            if panel.part == draft.kind:
                resolve(panel.show)([] if draft.base is None else draft.base.features)
        if draft.base is not None:
            _show_notes(draft, draft.base)
        _preview(draft)


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
                on_click=partial(_settle, draft, doubt),
                help="Changes how the file is read; step 1 and 2 show it, and can change it back.",
            )


def _settle(draft: Draft, doubt: Doubt) -> None:
    if doubt.option == "role":
        change_roles(draft, dict(map(parse_role, doubt.values)))
    else:
        choices.put(doubt.option, doubt.values)


def stimuli_uploader() -> None:
    """Draw what takes files; it stays in all steps, as a file on its way to it is lost with it."""
    others = [entry for entry in FORMATS.values() if entry is not TABLE]
    named = "".join(f" or a {entry.name} ({', '.join(entry.suffixes)})" for entry in others)
    state.uploader(
        f"Upload a table (.csv, .tsv, .txt, .xlsx, .parquet, .jsonl){named}",
        "stimuli",
        _take,
        accept_multiple_files=True,
        help="A table: one row a stimulus, with a header; one column holds the sentences, and how "
        "it is written is detected."
        + "".join(f" Several {suffix} files at once are one set." for suffix in folder_suffixes()),
    )


def _choose(draft: Draft) -> None:
    st.subheader("Your stimuli")
    if state.refused_upload("stimuli"):
        st.button(
            f"Go on with {plain(draft.label)}",
            icon=":material/undo:",
            on_click=partial(st.session_state.pop, "refused stimuli"),
            help="Forgets the files that cannot be used.",
        )
    sets = list(datasets.SETS)
    there = list(dict.fromkeys([*sets, *_uploaded(), draft.name]))
    st.selectbox(
        "Stimulus set",
        there,
        format_func=lambda name: name.rpartition("/")[2] + (" (built in)" * (name in sets)),
        **choices.bound("form stimuli", draft.name, state.choose_stimuli),
        help="A built-in set, or what you have uploaded.",
    )
    if draft.base is not None:
        names = ", ".join(feature.name for feature in draft.base.features)
        n, level = len(draft.base.features), LEVELS.get(draft.base.level)
        kind = f" ({level})" if level else ""
        st.caption(plain(f"{len(draft.base):,} stimuli{kind}, {n} features: {names}"))
    st.download_button(
        "Template",
        data=TEMPLATE,
        file_name="template.csv",
        icon=":material/download:",
        on_click="ignore",
        help="A CSV of ten words of four sentences, to be replaced by yours.",
    )


def _uploaded() -> list[str]:
    uploaded: list[str] = st.session_state.setdefault("uploaded", [])
    return uploaded


def _take(files: list[Any]) -> None:
    """Keep what was uploaded and choose it, whatever it holds; its problems are named."""
    if len(files) > 1 and not find_format([Path(file.name) for file in files]).reads_folders:
        several = "".join(
            f", or several {suffix} files, which are one set" for suffix in folder_suffixes()
        )
        raise InputError(f"{len(files)} files were uploaded at once; expected one table{several}.")
    name = stored.keep_files(*files)
    st.session_state["uploaded"] = list(dict.fromkeys([*_uploaded(), state.stimuli(), name]))
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


def _table_choices(draft: Draft) -> None:
    read_as = draft.table.read_as if draft.table is not None else ReadAs()
    workbook = read_as.sheet is not None
    text = draft.table is None or read_as.separator is not None
    if draft.table is not None:
        rows, columns = draft.table.frame.shape
        # Where the stimuli can be used, a note below says how an unusual file was read.
        noted = draft.base is not None and not read_as.plain
        how = "" if noted else f", {plain(read_as.sentence)}"
        size = f"{many(rows, 'row')}, {many(columns, 'column')}"
        st.markdown(f"**{plain(draft.label)}**: {size}{how}")
    first, second = st.columns(2)
    with first:
        if workbook:
            _detected("sheet", read_as.sheets, str(read_as.sheet))
        elif text:
            signs = ("comma", "semicolon", "tab", "bar")
            _detected("sep", signs, SEPARATORS.get(str(read_as.separator), ""))
        _detected("decimal", [*DECIMALS.values()], DECIMALS.get(str(read_as.decimal), ""))
    with second:
        if text:
            _detected("encoding", ENCODINGS, read_as.encoding_name, accept_new_options=True)
        marks = list[str]()
        for name, role in draft.roles.items():
            if role in FEATURES:
                marks += draft.marks.get(name, [])
        detected_marks = ", ".join(read_as.found or dict.fromkeys(marks)) or "none"
        _detected(
            "na",
            [choices.NOTHING],
            detected_marks,
            lambda one: "only empty cells" if one == choices.NOTHING else one,
            accept_new_options=True,
        )
    if "word_index" in draft.roles.values():
        state.field("counts_from")
    if workbook or text:
        offered = dict(enumerate(map(plain, read_as.first_rows), 1))
        detected = "" if read_as.header_row is None else f"row {read_as.header_row}"
        _detected(
            "header_row",
            [str(number) for number in (0, *offered)],
            "no header" if read_as.header_row == 0 else detected,
            lambda one: f"row {one}: {offered.get(int(one), '')}" if one != "0" else "no header",
        )


def _preview(draft: Draft) -> None:
    if (cells := draft.cells) is None:
        return
    first = _with_marked_words(draft, cells.head(PREVIEW))
    st.dataframe(
        first.rename(index=lambda row: row + 1),
        height="content",
        alt=f"The first {len(first)} rows of {draft.label}",
    )
    part = f"The first {len(first)} of " if len(first) < len(cells) else ""
    words = draft.base is not None and draft.base.level == "word"
    marked = " Brackets in the sentence are around the stimulus." * words
    st.caption(f"{part}{many(len(cells), 'row')}.{marked}")


def _with_marked_words(draft: Draft, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table with brackets around the stimulus in its sentence, if it is a word."""
    stimuli = draft.base
    if stimuli is None or stimuli.word_index is None:
        return rows
    sentences = []
    for sentence, at in zip(stimuli.sentences[: len(rows)], stimuli.word_index, strict=False):
        words = sentence.split()
        words[at] = f"[{words[at]}]"
        sentences.append(" ".join(words))
    column = next((name for name, role in draft.roles.items() if role == "sentence"), "sentence")
    return rows.assign(**{column: sentences})
