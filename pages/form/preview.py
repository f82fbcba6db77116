"""The first rows of a file: a click makes one the header, and the stimulus is marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from mlem_core.base.text import many
from mlem_core.stimuli.columns import cell_text
from pages.form.draft import Draft
from pages.parts import choices
from pages.parts.choices import plain

PREVIEW, MOST_ABOVE = 8, 12  # rows that are shown: below the header, and above it
HEADER = "header"
_KEY, _FOLDER = "form preview", Path(__file__).parent


def show_preview(draft: Draft) -> None:
    """Draw the rows; nothing where no row can be told."""
    cells, raw, above, header = draft.cells, draft.first_rows, 1, 1
    if raw:
        read_as = draft.table.read_as if draft.table is not None else None
        above, header = (read_as.above, read_as.header_row or 0) if read_as else (0, 0)
        texts: list[Sequence[str]] = [*raw]
    elif cells is not None:
        below = cells.head(PREVIEW).itertuples(index=False)
        texts = [list(map(str, cells)), *([cell_text(cell) or "" for cell in row] for row in below)]
    else:
        return
    css, js = ((_FOLDER / f"preview.{kind}").read_text("utf-8") for kind in ("css", "js"))
    draw = st.components.v2.component("preview", html='<div class="preview"></div>', css=css, js=js)
    draw(
        data={
            "rows": _drawn(draft, texts, above, header),
            "clickable": bool(raw),
            "label": f"First rows of {draft.label}",
        },
        key=_KEY,
        on_header_change=lambda: choices.put("header_row", [str(st.session_state[_KEY][HEADER])]),
    )
    said = [f"{many(len(cells), 'row')}."] if cells is not None else []
    if raw:
        said.append("Click the row with the names of the columns, if it is another one.")
    if draft.base is not None and draft.base.level != "stimulus":
        marked = draft.base.level == "word"
        said.append(f"Each stimulus is {'the marked word' if marked else 'a sentence'}.")
    st.caption(plain(" ".join(said)))


def _drawn(
    draft: Draft, texts: Sequence[Sequence[str]], above: int, header: int
) -> list[dict[str, Any]]:
    """Rows as the script draws them; stimuli are numbered from 1, as messages do."""
    width, marks = max(map(len, texts)), _marked_words(draft)
    rows, stimulus = [], 0
    for number, row in enumerate(texts, 1):
        padded = [*row, *[""] * (width - len(row))]
        cells: list[dict[str, Any]] = [{"text": text, "mark": None} for text in padded]
        kind, shown = ("above", "·") if number <= above else ("row", "·")
        if number == header:
            kind, shown = HEADER, HEADER
        elif number > above and any(row):
            stimulus += 1
            shown = str(stimulus)
            sentence, mark = next(marks, ("", None))
            if mark and sentence in row:
                cells[row.index(sentence)]["mark"] = mark
        rows.append({"number": number, "shown": shown, "kind": kind, "cells": cells})
    return rows[max(0, above - MOST_ABOVE) :]


def _marked_words(draft: Draft) -> Iterator[tuple[str, tuple[int, int]]]:
    """The cell of the sentence of each stimulus, and where its word begins and ends there."""
    stimuli, cells = draft.base, draft.cells
    column = next((name for name, role in draft.roles.items() if role == "sentence"), "sentence")
    if stimuli is None or stimuli.word_index is None or cells is None or column not in cells:
        return
    for cell, place in zip(cells[column].map(str), stimuli.word_index, strict=False):
        yield cell, [word.span() for word in re.finditer(r"\S+", cell)][place]
