"""The canvas as elements of a page: A and B, all layers, the finding, and maps of the stimuli.

The one place that knows both its sources and Streamlit. Its parts share what is chosen in the
browser; only that of all layers gets data, and is heard.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.text import percent
from mlem_core.figures.canvas import canvas_data, canvas_maps, compute_map, lacking_maps
from mlem_core.figures.context import FigureContext
from mlem_core.inference.explanation_text import settled
from mlem_core.report.canvas_files import script, style
from mlem_core.tasks.followups import Followup
from pages.parts import background, choices, exporting, frame
from pages.parts.view import View, chosen_similarity, select_pair

_ENTRY = """
export default function ({ data, parentElement, setTriggerValue }) {
  const content = JSON.parse(new TextDecoder().decode(data));
  const send = content.layers && (choices => setTriggerValue("chosen", choices));
  mount(parentElement.querySelector(".holder"), "PART", content, send);
}
"""
_HOLDER = '<div class="holder" style="container-type: inline-size"></div>'
# The views of all layers, the first one shown, each with the figure that is its export.
VIEWS = {"heatmap": "similarity", "map": "layer_maps", "profiles": "profiles", "scatter": "compare"}
_EXPORTED = "canvas "  # before the name of its figure in that of a dialog
_HEARD = "heard"  # in the state of a session: the number of the canvas's last choice
NOTHING: Mapping[str, Any] = MappingProxyType({})
SOON, OFTEN = 1.0, 3.0  # seconds until maps are made, and between two looks at some work


def show(part: str, job_id: str, content: Mapping[str, Any] = NOTHING, **events: Any) -> None:
    """A part of the canvas of an analysis: "strip", "views", "finding" or "maps"."""
    if part == "maps" and canvas_maps() is None:
        return
    code = script() + _ENTRY.replace("PART", part)
    component = st.components.v2.component(f"canvas_{part}", html=_HOLDER, css=style(), js=code)
    # As bytes: Streamlit would write the same text twice.
    data = json.dumps({**content, "of": job_id}).encode()
    component(data=data, key=f"canvas {part}", **events)


def chosen_view() -> str:
    """The view of all layers that is shown."""
    view = choices.get_one("view", "heatmap")
    return view if view in VIEWS else "heatmap"


def show_views(view: View) -> None:
    """All layers in the view that is chosen, and what the canvas waits for."""
    shown = view.shown(similarity=chosen_similarity())
    work = _pending_work(view, shown)
    progress = background.interval_progress(view.job_id) or _progress(work)
    content = {**canvas_data(shown, progress), "view": chosen_view()}
    content["heard"] = st.session_state.get(_HEARD, 0)
    show("views", view.job_id, content, on_chosen_change=partial(_choose, view))
    exported = frame.shown_dialog()
    if exported.startswith(_EXPORTED):
        figure = exported.removeprefix(_EXPORTED)
        exporting.export_dialog(view, VIEWS.get(figure, figure), similarity=chosen_similarity())
    _wait(shown, work)


def _choose(view: View) -> None:
    """Make the choices that the canvas tells, and remember that they were heard."""
    message = st.session_state["canvas views"]["chosen"]
    st.session_state[_HEARD] = message["told"]
    if "pair" in message:
        select_pair(view, *message["pair"])
    if "view" in message:
        choices.put("view", [message["view"]])
    if detail := message.get("details"):
        if detail in ("checks", "rest"):
            choices.put("detail", [detail])
        else:
            choices.put_all({"detail": ["pairs"], "term": [detail]})
    if figure := message.get("figure"):
        frame.open_dialog(_EXPORTED + figure)


def _pending_work(view: View, shown: FigureContext) -> Followup | None:
    """The work that gives the two layers their intervals and chance; None where they have them."""
    if settled(shown.why):
        return None
    (a, b), by = shown.pair, shown.why.similarity.name
    options = {"a": a, "b": b, "features": view.features, "similarity": by}
    return view.work("error-bars", options)


def _progress(work: Followup | None) -> str:
    """How far some work is, in tenths; empty before it has begun."""
    status = None if work is None else work.status()
    if status is None or not status.times.stages:
        return ""
    return f" {percent(int(10 * status.share) / 10)}"


def _wait(shown: FigureContext, work: Followup | None) -> None:
    """Have made what the canvas lacks: intervals and chance of the two layers, and their maps."""
    maps = lacking_maps(shown)
    background.give_way(work)
    if work is not None and (not work.folder.exists() or work.status().state == "cancelled"):
        with contextlib.suppress(InputError, OSError):
            background.begin_ahead(work)
    if maps or (work is not None and work.status().goes_on):
        st.fragment(_arrive, run_every=SOON if maps else OFTEN)(
            shown, work, maps, _progress(work), []
        )


def _arrive(
    shown: FigureContext, work: Followup | None, maps: list[Any], progress: str, looked: list[bool]
) -> None:
    """Draw the canvas anew once what it lacked is there, or its work has gone on.

    Not in the run that draws the page (`looked` is empty): the canvas is left time to appear, and
    a click on what stands below it is heard.
    """
    if not looked:
        looked.append(True)
        return
    made = False
    for layer in maps:
        with contextlib.suppress(InputError):
            compute_map(shown, layer)
            made = True
    done = work is not None and not work.status().goes_on
    if made or done or _progress(work) != progress:
        st.rerun()
