"""Everything at once: the capsule of what a view shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.text import many
from mlem_core.base.typing import parse_layer
from pages.parts import background, frame

if TYPE_CHECKING:
    from pages.parts.view import View


@st.fragment
def offer(view: View) -> None:
    """A button behind which the capsule is made, in the background, and downloaded."""
    popover = st.container(horizontal=True, horizontal_alignment="right").popover(
        "Download everything",
        icon=":material/folder_zip:",
        key="capsule",
        on_change="rerun",
        width="content",
        help="All tables and all figures of what is shown, with what is needed to run it again.",
    )
    if popover.open:
        with popover:
            frame.attempt(lambda: _make(view))


def _make(view: View) -> None:
    from mlem_core.tasks import followups

    selection, (a, b) = view.selection, view.pair
    options = {
        **selection.to_dict(),
        "pair": [] if a == b else [list(parse_layer(layer)) for layer in (a, b)],
    }
    st.markdown(
        f"One zip, a capsule, of what is shown: {many(len(selection.features), 'feature')} in "
        f"{many(len(selection.layers), 'layer')}. In it are all tables, all figures, the stimuli, "
        "a methods paragraph, the references and all versions."
    )
    task = view.work("capsule", options)
    background.offer(
        task, "Make the capsule", "Draws all figures in the background; about half a minute."
    )
    if task.status().state == "done":
        path = task.file(followups.CAPSULE)
        st.download_button(
            f"Download the capsule ({path.stat().st_size / 1e6:.1f} MB)",
            data=path.read_bytes,
            file_name=f"{Path(view.analysis.stimuli.name).stem}-capsule.zip",
            mime="application/zip",
            key="download capsule",
            type="primary",
            icon=":material/download:",
            on_click="ignore",
            help="Keep it beside the paper.",
        )
    st.caption(
        "`python -m mlem_core verify FILE.zip` runs it again, models included, and says which "
        "numbers differ."
    )
