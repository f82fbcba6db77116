"""Opening of a page's view: its head, and the strip in which a selection is chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mlem_core import extending
from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.files import python_lines, shell_line
from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from mlem_core.base.typing import Layer
from mlem_core.tasks import analyses, followups, notes
from mlem_core.tasks.access import view_only
from mlem_core.tasks.analyses import Job
from pages.parts import background, canvas, choices, frame, stored
from pages.parts.choices import inform, plain
from pages.parts.screens import SCREENS
from pages.parts.view import View, open_view

NOT_DONE = {
    "queued": "is waiting for its turn; its progress is at the top of this page.",
    "running": "is still running; its progress is at the top of this page.",
    "cancelled": "was cancelled; run it again on the page New analysis.",
    "failed": "did not finish; the top of this page says why.",
}


def view_page(url_path: str, body: Callable[[View], None]) -> None:
    """Draw a screen of an analysis, as `frame.page`."""
    frame.page(url_path, partial(show_view, url_path, body))


def show_view(url_path: str, body: Callable[[View], None]) -> None:
    """Draw a screen of an analysis, or say why there is nothing to show yet.

    Parameters
    ----------
    url_path : of the screen
    """
    view = _open_view(url_path)
    if view is not None:
        frame.attempt(partial(body, view))


def _open_view(url_path: str) -> View | None:
    """Head and choices of a view; None where there is nothing to show yet, which it says."""
    done = finished()
    job_id = _chosen(done)
    if job_id is None:
        return None
    head = st.container(horizontal=True, vertical_alignment="center", key="head")
    analysis = stored.open_analysis(job_id)
    with head:
        st.markdown(_question(url_path, analysis), width="stretch")
        _offer_notices(analysis)
        background.show_tasks()
        labels = stored.analysis_names()
        st.selectbox(
            "Analysis",
            list(done),
            format_func=lambda one: labels.get(one, one),
            help="Which of the finished analyses is shown.",
            label_visibility="collapsed",
            width=260,
            **choices.bound("which analysis", job_id, choices.open_job),
        )
    with st.container(horizontal=True, vertical_alignment="center", key="strip"):
        if url_path == "explore":
            with st.container(width="stretch"):
                canvas.show("strip", job_id)
        selection = _choose_selection(analysis)
    if not selection.features or not selection.layers:
        what = "feature" if not selection.features else "model and one layer"
        inform(f"Choose at least one {what}.")
        return None
    view = open_view(job_id, selection, in_part=True)
    if view is not None:
        with head, st.container(width="content"):
            _offer_downloads(view)
    return view


def _question(url_path: str, analysis: Analysis) -> str:
    """What a page is for, with what can be clicked on it."""
    if url_path != "explore":
        return f"### {SCREENS[url_path].title}"
    what = plain(many(len(analysis.stimuli), analysis.stimuli.level))
    return f"**What makes two models think alike?** :gray[Click a cell: two layers on {what}.]"


def n_models() -> int:
    """Number of models of the analysis that is shown; 0 without one."""
    job_id = st.query_params.get("analysis") or choices.get_one("analysis")
    with contextlib.suppress(InputError):
        job = stored.find_job(job_id) if job_id else next(iter(finished().values()), None)
        return 0 if job is None else len(notes.named_models(job.spec))
    return 0


def finished() -> dict[str, Job]:
    """The analyses that are done, the latest first; last the example."""
    recent = analyses.recent(stored.store())
    return {job.id: job for job in recent if job.status().state == "done"}


def _chosen(done: dict[str, Job]) -> str | None:
    """The analysis that the state names, else the latest; None where it cannot be shown."""
    job_id = choices.get_one("analysis")
    latest = next(iter(done.values()), None)
    if not job_id and latest is not None:
        choices.open_job(latest.id)
        return latest.id
    if not job_id:
        what = "There is no analysis yet: choose stimuli and models and run one"
        inform(f"{what} on the page New analysis.")
    elif job_id not in done:
        try:
            job = stored.find_job(job_id)
            state = job.status().state
            if state == "done":  # since a moment ago
                done[job_id] = job
            else:
                inform(f"The analysis {NOT_DONE[state]}")
        except InputError as error:
            st.error(plain(error), icon=":material/error:")
    if job_id in done:
        return job_id
    _next_steps(latest)
    return None


def _choose_selection(analysis: Analysis) -> Selection:
    """Selection of the user from an analysis: features, models and layers, behind their counts."""
    names = [feature.name for feature in analysis.stimuli.features]
    features = _choose_some(
        {"feature": names},
        "features",
        stored.feature_titles(names),
        "The metric model is fitted again with the features that you keep, from sums over the "
        "pairs; no language model runs for it.",
    )
    ordered = tuple(name for name in names if name in features)
    layers = tuple(_choose_layers(analysis))
    if choices.can_reset():
        st.button(
            "Reset",
            icon=":material/restart_alt:",
            type="tertiary",
            key="reset",
            on_click=choices.reset,
            help="Takes back all choices: shows this analysis as it was run. The browser's Back "
            "takes back the last one.",
        )
    return replace(analysis.select(), features=ordered, layers=layers)


def _choose_some(
    kinds: Mapping[str, Sequence[str]], name: str, titles: Mapping[str, str], help: str
) -> list[str]:
    """Some of the features, or of the models and subjects, behind the count of each kind."""
    kinds = {kind: names for kind, names in kinds.items() if names}
    selected = choices.get_many(name, list(titles), list(titles))
    counts = [
        _count([each for each in selected if each in names], names, kind)
        for kind, names in kinds.items()
    ]
    all_kinds = " and ".join(f"{kind}s" for kind in kinds)
    with st.popover(", ".join(counts), help=f"Which {all_kinds} are shown."):
        return choices.toggle_many(all_kinds.capitalize(), titles, name, help=help)


def _count(kept: Sequence[Any], names: Sequence[Any], what: str) -> str:
    """Label of a choice: "8 features", or "7 of 8 features" where some are left out."""
    some = f"{len(kept)} of " * (len(kept) < len(names))
    return f"{some}{many(len(names), what)}"


def _choose_layers(analysis: Analysis) -> list[Layer]:
    models = list(dict.fromkeys(model for model, _ in analysis.layers))
    numbers = [str(n) for n in sorted({layer for _, layer in analysis.layers})]
    subjects = {model for group in subject_layers(analysis).values() for model, _ in group}
    kinds = {
        "model": [model for model in models if model not in subjects],
        "subject": [model for model in models if model in subjects],
    }
    layers = _choose_some(
        kinds, "show_models", stored.model_titles(models), "Whose layers are shown."
    )
    at = choices.get_many("show_layers", numbers, [])
    selected = [
        (model, layer)
        for model, layer in analysis.layers
        if model in layers and (not at or str(layer) in at)
    ]
    label = _count(selected, analysis.layers, "layer")
    with st.popover(label, help="Which layers are shown."):
        choices.choose_many(
            "Layers",
            numbers,
            "show_layers",
            [],
            placeholder="All layers",
            help="Layer 0 is the embeddings, layer k is what leaves block k. Leave it empty for "
            "all layers.",
        )
        for model in models:
            shown = [layer for layer in selected if layer[0] == model]
            if shown:
                st.caption(plain(stored.names().layers_title(shown)))
    return selected


def _offer_notices(analysis: Analysis) -> None:
    """What to know of the analysis, behind its count."""
    if analysis.notices:
        title, help = many(len(analysis.notices), "note"), "What to know of this analysis."
        with st.popover(title, icon=":material/info:", type="tertiary", key="notes", help=help):
            for notice in analysis.notices:
                st.markdown(f"- {plain(notice)}")


def _next_steps(latest: Job | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if latest is not None:
            st.button(
                f"Open {plain(stored.analysis_name(latest))}",
                icon=":material/folder_open:",
                type="primary",
                on_click=lambda: choices.open_job(latest.id),
                help="Shows the latest analysis that is done.",
            )
        if not view_only():
            st.page_link(SCREENS["new"].file, label="Go to New analysis", icon=SCREENS["new"].icon)


@st.fragment
def _offer_downloads(view: View) -> None:
    """A button behind which files of the analysis are made, in the background, and downloaded."""
    popover = st.container(horizontal=True, width="content").popover(
        "Download",
        icon=":material/folder_zip:",
        key="downloads",
        on_change="rerun",
        width="content",
        help="All tables and figures as one zip, one HTML page, or the same as a command.",
    )
    if popover.open:
        with popover:
            frame.attempt(lambda: _offer_archive(view))
            st.divider()
            for panel in extending.panels("downloads"):
                frame.attempt(partial(extending.resolve(panel.show), view))
                st.divider()
            frame.attempt(lambda: _as_text(view))


def _offer_archive(view: View) -> None:
    """A zip of everything, made in the background, and downloaded."""
    st.markdown(
        "One zip of the whole analysis as it was run: all tables and figures, the methods "
        "paragraph, the references, the stimuli and `manifest.json`."
    )
    help = "Computes all tables and draws all figures in the background; about half a minute."
    offer_file(view, "archive", ("Make the zip", "Download all"), {}, followups.ARCHIVE, help)
    st.caption("`mlem rerun FILE.zip` runs it again and says which tables differ.")


def offer_file(
    view: View,
    kind: str,
    labels: tuple[str, str],
    options: dict[str, Any],
    file_name: str,
    help: str,
) -> None:
    """The button that makes a file by a kind of work, or downloads it; `labels` are of both."""
    task = view.work(kind, options)
    background.offer(task, labels[0], help)
    if task.status().state == "done":
        path = task.file(file_name)
        named = options.get("stimuli", True)
        stem = Path(view.analysis.stimuli.name).stem if named else "analysis"
        st.download_button(
            f"{labels[1]} ({path.stat().st_size / 1e6:.1f} MB)",
            data=path.read_bytes,
            file_name=f"{stem}-{file_name}",
            key=f"download {kind}",
            type="primary",
            icon=":material/download:",
            on_click="ignore",
            help="Keep it beside the paper.",
        )


def _as_text(view: View) -> None:
    """What is shown as a command and in Python, to be copied."""
    spec = view.analysis.spec
    if len(view.features) < len(view.shown().all_features):
        spec = replace(spec, features=view.selection.features)
    pair = view.chosen_pair
    lines = [shell_line("analyze", spec, "--out=results")]
    if pair is not None:
        lines.append(shell_line("why", spec, *view.pair))
    with st.expander("The same as a command"):
        st.code("\n".join(lines), language="bash", wrap_lines=True)
    with st.expander("The same in Python"):
        st.code(python_lines(spec, pair), language="python", wrap_lines=True)
