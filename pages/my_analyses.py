"""My analyses: a row for each, to be opened, renamed, compared, duplicated or deleted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mlem_core import extending
from mlem_core.base.text import fraction
from mlem_core.tasks import analyses, deletion, notes
from mlem_core.tasks.access import view_only
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.notes import Notes
from pages.form import state
from pages.parts import background, choices, frame, stored
from pages.parts.choices import plain
from pages.parts.screens import SCREENS

MOST_LISTED = 6
WIDTHS = (3, 1.3, 2.4, 0.9, 0.8, 1.1, 1.1)  # of the columns
LARGEST = "The largest RSA of two layers of different models, or groups of models."


def show_my_analyses() -> None:
    """The heading, a row for each analysis, and Undo after a deletion."""
    jobs = analyses.recent(stored.store())
    names = stored.analysis_names()
    st.subheader("My analyses")
    _offer_undo()
    if not view_only() and all(job.id == stored.EXAMPLE for job in jobs):
        st.caption("None yet. What you run is listed here, with the example.")
    over = [job for job in jobs if job.status().state in ("cancelled", "failed")]
    visible = [job for job in jobs if job not in over]
    with st.container(key="analyses head"):
        heads = "Name", "Run", "Models", "Stimuli", "RSA"
        for place, title in zip(_columns(), heads, strict=False):
            place.caption(title, help=LARGEST if title == "RSA" else None)

    def lines(jobs: list[Job]) -> None:
        for job in jobs:
            frame.attempt(partial(_line, job, names))

    lines(visible[:MOST_LISTED])
    for panel in extending.panels("analyses"):
        frame.attempt(extending.resolve(panel.show))
    for rest, title, icon in (
        (visible[MOST_LISTED:], "{} more", "history"),
        (over, "{} failed or cancelled", "cancel"),
    ):
        if rest:
            title = title.format(len(rest))
            key = f"{title.partition(' ')[2]} analyses"
            frame.folded_part(title, icon, key, partial(lines, rest))


def _columns() -> list[Any]:
    return st.columns(WIDTHS, vertical_alignment="center", gap="small")


def _line(job: Job, names: dict[str, str]) -> None:
    """A row of the table: name and note, date, models, stimuli and the largest similarity."""
    status, note = job.status(), notes.read_notes(job.id, stored.store()).note
    state = status.state
    contents = job.contents() if state == "done" else None
    requested = notes.named_models(job.spec)
    there = requested if contents is None else list(contents.models)
    left_out = [name for name in requested if name not in there]
    with st.container(key=f"line of {job.id}"):
        name, when, models, stimuli, number, open_, more = _columns()
        about = ", ".join(notes.described_choices(job.spec)) or None
        name.markdown(f"**{plain(names.get(job.id, job.id))}**", help=about)
        if note:
            lines = "  \n".join(plain(line) for line in note.splitlines())
            name.caption(f":material/sticky_note_2: {lines}")
        when.markdown("" if job.start_time is None else f"{job.start_time:%d %b %Y, %H:%M}")
        models.markdown(plain(stored.names().models_title(there)))
        if left_out:
            models.caption(plain(f"Left out: {stored.names().models_title(left_out)}."))
        if contents is not None:
            stimuli.markdown(f"{contents.n_stimuli:,}")
            number.markdown("" if np.isnan(contents.similarity) else fraction(contents.similarity))
        if state != "done":
            label, color, symbol = background.STATES[state]
            stimuli.badge(label, icon=f":material/{symbol}:", color=color)  # type: ignore[arg-type]
        if state == "failed":
            name.caption(plain(status.message))
        here = job.id == choices.get_one("analysis")
        if open_.button(
            "Shown" if here else "Open",
            key=f"open {job.id}",
            disabled=here or state != "done",
            help="Shows it here and on all pages.",
        ):
            choices.open_job(job.id)
            st.rerun()
        if view_only():
            return
        menu = more.popover(
            "More",
            key=f"more {job.id}",
            on_change="rerun",
            help="Rename it, write a note, duplicate or delete it.",
        )
        if menu.open:
            with menu:
                frame.attempt(partial(_more, job, names))
        if frame.shown_dialog() == f"delete {job.id}":
            _ask_to_delete(job, names.get(job.id, job.id))


def _more(job: Job, names: dict[str, str]) -> None:
    written = notes.read_notes(job.id, stored.store())

    def write(change: Callable[[Notes], Notes]) -> None:
        notes.change_notes(job.id, stored.store(), change)

    st.text_input(
        "Name",
        placeholder=names.get(job.id, ""),
        max_chars=notes.LONGEST_NAME,
        help="What the analysis is called everywhere; empty for a name made of what was chosen.",
        **choices.bound(
            f"name {job.id}",
            written.name,
            lambda text: write(lambda old: old.named(text)),
            typed=True,
        ),
    )
    st.text_area(
        "Note",
        max_chars=notes.LONGEST_NOTE,
        help="Anything that you want to remember of it; it stands in the list.",
        **choices.bound(
            f"note {job.id}",
            written.note,
            lambda text: write(lambda old: old.noted(text)),
            typed=True,
        ),
    )
    with st.container(horizontal=True):
        if st.button(
            "Duplicate",
            icon=":material/content_copy:",
            key=f"duplicate {job.id}",
            help="Opens New analysis with all choices of this one, to be changed.",
        ):
            choices.put_all(state.form_state(job.spec))
            st.switch_page(SCREENS["new"].file)
        if job.id != stored.EXAMPLE:
            st.button(
                "Delete",
                icon=":material/delete:",
                key=f"delete {job.id}",
                help="Takes it out of the list, after a question.",
                on_click=partial(frame.open_dialog, f"delete {job.id}"),
            )


@st.dialog("Delete this analysis?", on_dismiss=frame.close_dialog)
def _ask_to_delete(job: Job, name: str) -> None:
    frame.attempt(partial(_confirm_deletion, job, name))


def _confirm_deletion(job: Job, name: str) -> None:
    st.markdown(
        f"**{plain(name)}** is deleted with its notes, intervals and audit. If it runs, it is "
        "stopped. You can undo this until you delete another analysis or restart the app."
    )
    with st.container(horizontal=True):
        if st.button("Delete", type="primary", key=f"delete for sure {job.id}"):
            deletion.delete(job.id, name, stored.store())
            if choices.get_one("analysis") == job.id:
                choices.open_job("")
            frame.close_dialog()
            st.rerun()
        if st.button("Keep it", key=f"keep {job.id}", on_click=frame.close_dialog):
            st.rerun()


def _offer_undo() -> None:
    """A line with Undo, for as long as a deleted analysis can be brought back."""
    job = deletion.last_deleted(stored.store())
    if job is None or view_only():
        return
    name = notes.read_notes(job.id, stored.store()).name or notes.derived(job)
    with st.container(horizontal=True, vertical_alignment="center", key="deleted"):
        st.markdown(f"Deleted **{plain(name)}**.", width="content")
        if st.button(
            "Undo",
            icon=":material/undo:",
            key="undo deletion",
            help="Brings the analysis back, with its notes and all that was computed of it.",
        ):
            deletion.restore(job.id, stored.store())
            st.rerun()
