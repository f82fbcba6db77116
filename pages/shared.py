"""What the pages share: their frame and errors, the analysis that they show, figures, tables."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.errors import InputError
from mlem_core.store import Store
from pages import choices

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from mlem_core.analysis import Analysis
    from mlem_core.jobs import Job
    from mlem_core.results import Layer, Results
    from mlem_core.spec import AnalysisSpec

PAGES = {
    "Profiles": "pages/profiles_page.py",
    "Similarity": "pages/similarity_page.py",
    "Compare": "pages/compare_page.py",
    "Why alike": "pages/why_page.py",
    "Stimuli": "pages/stimuli_page.py",
}
ANALYSIS_PAGE = "pages/analysis_page.py"

_UPLOAD = re.compile(r"[0-9a-f]{64}/[^/\\]+")


# --- pages ---------------------------------------------------------------------------------


def page(body: Callable[[], None]) -> None:
    """Draw a page; what goes wrong is one sentence in it, the details go to the log."""
    choices.sync()
    attempt(body)


def attempt(body: Callable[[], None]) -> None:
    """Draw a part of a page; its errors leave the other parts alone."""
    try:
        body()
    except InputError as error:
        st.error(choices.plain(error), icon=":material/error:")
    except Exception:
        logging.getLogger(__name__).exception("unexpected error in a page")
        st.error(
            "Something unexpected happened; the log of the server has the details.",
            icon=":material/error:",
        )


@st.cache_resource
def store() -> Store:
    """The store of this server."""
    return Store()


def duration(seconds: float) -> str:
    """A time in words: 40 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- the chosen analysis -------------------------------------------------------------------


def upload_name(path: str | Path) -> str:
    """How the URL names an uploaded file: its digest and its name."""
    return "/".join(Path(path).parts[-2:])


def upload_path(name: str) -> Path:
    """The file of an upload named in a URL.

    Raises
    ------
    InputError
        No such upload is in this machine's store.
    """
    path = store().root / "uploads" / name
    if not _UPLOAD.fullmatch(name) or name.endswith(("/.", "/..")) or not path.is_file():
        raise InputError(
            f"the uploaded file {name.rpartition('/')[2]!r} is not on this machine; upload it "
            "again."
        )
    return path


def on_interactions(spec: AnalysisSpec) -> str:
    """What a caption adds where interactions are among the importances."""
    if not spec.interactions:
        return ""
    return " Of the interactions (a × b) those that matter most are drawn; the CSV has all."


def describe(spec: AnalysisSpec) -> str:
    """An analysis in a few words: stimuli, models and what is not the default."""
    from dataclasses import fields

    names = [*spec.models, *(name for name, _ in spec.representations)]
    parts = [Path(spec.stimuli).name, ", ".join(names)]
    if spec.layers is not None:
        parts.append("layers " + ", ".join(str(layer) for layer in spec.layers))
    if spec.features is not None:
        parts.append(f"{len(spec.features)} features")
    shown = ("stimuli", "models", "representations", "layers", "features", "device")
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name not in shown and value != field.default:
            text = ", ".join(value) if isinstance(value, tuple) else value
            parts.append(f"with {field.name}" if value is True else f"{field.name} {text}")
    return " · ".join(parts)


def find_job(job_id: str) -> Job:
    """The job that the state names; InputError where this machine has none such."""
    from mlem_core import jobs

    job = jobs.find(job_id, store()) if re.fullmatch(r"[0-9a-zA-Z_-]+", job_id) else None
    if job is None:
        raise InputError(
            "the analysis in this address is not on this machine; run it again on the page "
            "Analysis."
        )
    return job


@st.cache_resource(max_entries=8, show_spinner="Opening the analysis …")
def open_analysis(job_id: str) -> Analysis:
    """A finished analysis, loaded once for all visitors."""
    return find_job(job_id).analysis()


@st.cache_data(max_entries=64, show_spinner=False)
def _results(job_id: str, features: tuple[str, ...], layers: tuple[str, ...]) -> Results:
    # Keys are texts: Streamlit's hash of a large array looks at a sample of it only.
    return open_analysis(job_id).results(features, [as_layer(layer) for layer in layers])


def as_layer(name: str) -> Layer:
    """("minilm", 3) of "minilm:3"."""
    model, _, layer = name.rpartition(":")
    return model, int(layer)


class View:
    """The analysis that a view shows, and the features and layers that the user keeps.

    Attributes
    ----------
    job_id : of the analysis
    analysis : as loaded
    all_features : of the analysis, in its order (their place decides the colours)
    features : kept by the user, in the same order
    layers : (model, layer) kept by the user
    """

    def __init__(
        self, job_id: str, analysis: Analysis, features: list[str], layers: list[Layer]
    ) -> None:
        self.job_id, self.analysis = job_id, analysis
        self.all_features = [feature.name for feature in analysis.stimuli.features]
        self.features, self.layers = features, layers

    @property
    def layer_names(self) -> list[str]:
        """ "model:layer" of each kept layer."""
        return [f"{model}:{layer}" for model, layer in self.layers]

    def results(self) -> Results:
        """The tables for the kept features and layers."""
        key = (self.job_id, tuple(self.features), tuple(self.layer_names))
        seen = st.session_state.setdefault("fitted", set())
        said = st.empty()
        if key not in seen and not self.analysis.spec.estimator.startswith("ridge"):
            # Said before the work starts: a spinner comes too late where it keeps a core busy.
            said.info(
                "Fitting the metric models from the pair tables: the estimator "
                f"{self.analysis.spec.estimator} takes about a second a layer.",
                icon=":material/hourglass:",
            )
        results = _results(*key)
        seen.add(key)
        said.empty()
        return results


def view(title: str, lead: str, *, layers: bool = True) -> View | None:
    """Head and sidebar of a view; None where there is nothing to show yet (and it is said)."""
    from mlem_core import jobs

    st.title(title)
    st.markdown(lead)
    recent = jobs.recent(store())
    done = {job.id: job for job in recent if job.status().state == "done"}
    job_id = choices.get_one("analysis")
    latest = next(iter(done.values()), None)
    if not job_id:
        _nothing_yet(latest)
        return None
    if job_id not in done:
        state = find_job(job_id).status().state
        if state != "done":
            _not_done(state, latest)
            return None
        done[job_id] = find_job(job_id)
    with st.sidebar:
        key = choices.key_of("which analysis")
        st.session_state[key] = job_id
        st.selectbox(
            "Analysis",
            list(done),
            format_func=lambda one: describe(done[one].spec),
            key=key,
            on_change=lambda: choices.open_job(st.session_state[key]),
            help="Which of the finished analyses is shown. A new one is started on the page "
            "Analysis.",
        )
        analysis = open_analysis(job_id)
        names = [feature.name for feature in analysis.stimuli.features]
        features = choices.toggle_many(
            "Features",
            names,
            "features",
            help="The metric model is fitted again with the features that you keep, from the "
            "pair tables; no language model runs for it.",
        )
        kept = analysis.layers
        if layers:
            kept = _chosen_layers(analysis)
    for notice in analysis.notices:
        st.warning(choices.plain(notice), icon=":material/info:")
    if not features or not kept:
        what = "feature" if not features else "model and one layer"
        st.info(f"Choose at least one {what} in the sidebar.", icon=":material/info:")
        return None
    return View(job_id, analysis, [name for name in names if name in features], kept)


def _chosen_layers(analysis: Analysis) -> list[Layer]:
    models = list(dict.fromkeys(model for model, _ in analysis.layers))
    numbers = [str(n) for n in sorted({layer for _, layer in analysis.layers})]
    shown = choices.toggle_many(
        "Models", models, "show_models", help="The models whose layers are shown."
    )
    at = choices.choose_many(
        "Layers",
        numbers,
        "show_layers",
        [],
        placeholder="All layers",
        help="Layer 0 is the embeddings, layer k is what leaves block k. Leave it empty for all "
        "layers.",
    )
    return [
        (model, layer)
        for model, layer in analysis.layers
        if model in shown and (not at or str(layer) in at)
    ]


def _nothing_yet(latest: Job | None) -> None:
    if latest is None:
        what = (
            "There is no analysis yet: choose stimuli and models on the page Analysis and run it."
        )
    else:
        what = "No analysis is chosen: open the latest one, or run a new one on the page Analysis."
    st.info(what, icon=":material/info:")
    _ways_on(latest)


def _not_done(state: str, latest: Job | None) -> None:
    what = {
        "queued": "is waiting for its turn; its progress is on the page Analysis.",
        "running": "is still running; its progress is on the page Analysis.",
        "cancelled": "was cancelled; run it again on the page Analysis.",
    }.get(state, "did not finish; the page Analysis says why.")
    st.info(f"The analysis {what}", icon=":material/info:")
    _ways_on(latest)


def _ways_on(latest: Job | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if latest is not None:
            st.button(
                f"Open {choices.plain(describe(latest.spec))}",
                icon=":material/folder_open:",
                type="primary",
                on_click=lambda: choices.open_job(latest.id),
                help="Shows the latest analysis that is done.",
            )
        st.page_link(ANALYSIS_PAGE, label="Go to Analysis", icon=":material/play_circle:")


def two_layers(view: View) -> tuple[str, str]:
    """The pair of layers "model:layer" that Compare and Why alike look at."""
    first, second = st.columns(2)
    with first:
        a = choices.choose_one(
            "First layer", view.layer_names, "a", _middle(view, 0), format_func=layer_label,
            help="One of the two layers that are compared.",
        )  # fmt: skip
    with second:
        b = choices.choose_one(
            "Second layer", view.layer_names, "b", _middle(view, -1), format_func=layer_label,
            help="The other one.",
        )  # fmt: skip
    return a, b


def _middle(view: View, which: int) -> str:
    """The middle layer of the first or the last model (of one model: the last layer)."""
    models = list(dict.fromkeys(model for model, _ in view.layers))
    of = [layer for model, layer in view.layers if model == models[which]]
    at = -1 if which == -1 and len(models) == 1 else len(of) // 2
    return f"{models[which]}:{of[at]}"


# --- figures -------------------------------------------------------------------------------


def computed_on(results: Results) -> str:
    """On how much the results are computed, for a caption."""
    return f"{results.n_stimuli:,} stimuli, {results.n_pairs:,} pairs, {results.n_folds} folds"


def as_csv(frame: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    from mlem_core.stimuli import write_table

    buffer = io.BytesIO()
    write_table(frame, buffer)
    return buffer.getvalue()


def show_figure(figure: Figure, data: pd.DataFrame, name: str, caption: str) -> None:
    """A figure, how it was computed, and its downloads.

    Parameters
    ----------
    figure : what is drawn
    data : the table that it is drawn from
    name : file name of the downloads, without ending
    caption : how it was computed, and on how much
    """
    from mlem_core import figures

    on_server = figures.can_write_images()
    camera = "svg" if on_server else st.session_state.get(f"camera {name}") or "svg"
    st.plotly_chart(
        _on_page(figure),
        key=f"figure {name}",
        theme="streamlit",
        config={
            "displaylogo": False,
            "toImageButtonOptions": {"format": camera, "filename": name, "scale": 2},
        },
    )
    st.caption(caption)
    with st.container(horizontal=True, vertical_alignment="center"):
        if on_server:
            _image_button(figure, name, "svg", "image/svg+xml", "for papers; scales to any size")
            _image_button(figure, name, "png", "image/png", "for slides; 2 pixels a point")
        _csv_button(data, name, f"csv {name}", "The table that the figure is drawn from. ")
        if not on_server:
            st.segmented_control(
                "The camera above the figure saves",
                ["svg", "png"],
                default="svg",
                required=True,
                format_func=str.upper,
                key=f"camera {name}",
                help="Move the pointer over the figure: the camera in its corner saves it from "
                "your browser.",
            )


def _on_page(figure: Figure) -> Figure:
    """A copy that keeps its layout under Streamlit's theme, which follows light and dark."""
    from plotly.graph_objects import Figure

    copy = Figure(figure)
    copy.update_layout(title_xanchor="center", title_font_weight=400)
    copy.update_yaxes(automargin=True, title_standoff=14)
    copy.update_xaxes(automargin=True, title_standoff=10)
    return copy


def _csv_button(data: pd.DataFrame, name: str, key: str, what: str = "") -> None:
    st.download_button(
        "CSV",
        data=lambda: as_csv(data),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=key,
        icon=":material/download:",
        on_click="ignore",
        help=f"{what}Cells that a spreadsheet would run as formulas are escaped.",
    )


def _image_button(figure: Figure, name: str, format: str, mime: str, use: str) -> None:
    from mlem_core import figures

    width = int(figure.layout.width or 1000)
    height = int(figure.layout.height or 600)
    st.download_button(
        format.upper(),
        data=lambda: figures.image(figure, format, width=width, height=height),
        file_name=f"{name}.{format}",
        mime=mime,
        key=f"{format} {name}",
        icon=":material/download:",
        on_click="ignore",
        help=f"The figure as {format.upper()}: {use}. It takes a few seconds.",
    )


def show_table(
    frame: pd.DataFrame, name: str, title: str, caption: str, *, first: bool = False
) -> None:
    """A table with its download, folded away unless it comes first on the page."""
    with st.container() if first else st.expander(title, icon=":material/table:"):
        if first:
            st.subheader(title)
        st.dataframe(
            frame,
            hide_index=True,
            placeholder="",
            key=f"table {name}",
            height=380 if first else 300,
        )
        st.caption(caption)
        _csv_button(frame, name, f"table csv {name}")


def layer_label(name: str) -> str:
    """ "minilm layer 3" of "minilm:3"."""
    model, layer = as_layer(name)
    return f"{model} layer {layer}"


def pairs_of_layers(results: Results) -> pd.DataFrame:
    """Both similarities of every two layers, a row a pair of layers."""
    both = {
        "weighted_tau": results.similarity_profiles.stack(),
        "rsa": results.similarity_rsa.stack(),
    }
    import pandas as pd

    return pd.DataFrame(both).rename_axis(["layer_a", "layer_b"]).reset_index()


def importance_of(results: Results, a: str, b: str) -> pd.DataFrame:
    """Mean importance of each feature in two layers "model:layer"; the largest in `a` first."""
    import pandas as pd

    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    table = means.mean()
    columns = {name: table.loc[as_layer(name)] for name in dict.fromkeys((a, b))}
    return pd.DataFrame(columns).sort_values(a, ascending=False).reset_index()
