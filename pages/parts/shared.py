"""What the pages share: their frame and errors, how analyses are found, figures, tables."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.storage.store import Store
from pages.parts import choices
from pages.parts.exporting import folded as folded
from pages.parts.exporting import show_figure as show_figure
from pages.parts.exporting import show_table as show_table

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.results import Results
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.base.typing import Layer, Progress
    from mlem_core.tasks.analyses import Job

PAGES = {
    "Profiles": "pages/profiles_page.py",
    "Similarity": "pages/similarity_page.py",
    "Compare": "pages/compare_page.py",
    "Why alike": "pages/why_page.py",
    "Robustness": "pages/robustness_page.py",
    "Stimuli": "pages/stimuli_page.py",
}
ANALYSIS_PAGE = "pages/analysis_page.py"

EXAMPLE = "example"  # `mlem_core.tasks.examples.ID`, without its imports
ESTIMATOR_NAMES = {
    "ridge": "ridge: least squares, weights of at least 0",
    "ridge-rank": "ridge on the ranks of the distances",
    "spearman": "spearman: the highest rank correlation",
    "frrsa": "FR-RSA: the same without constraints",
}
MISSING_NAMES = {"ignore": "no distance to any value", "level": "a value of its own"}

_UPLOAD = re.compile(r"[0-9a-f]{64}/[^/\\]+")


# --- pages ---------------------------------------------------------------------------------


def page(body: Callable[[], None]) -> None:
    """Draw a page; what goes wrong is one sentence in it, the details go to the log."""
    choices.sync()
    attempt(body)
    _keep_what_is_loaded(body.__code__.co_filename)


@st.cache_resource(show_spinner=False)
def _keep_what_is_loaded(page: str) -> None:
    """Leave what the first visit of a page has loaded out of later collections of garbage.

    Streamlit collects after every run of a page; looking through all modules each time took longer
    than drawing a figure, and the browser waited for it.
    """
    gc.collect()
    gc.freeze()


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


def stage(progress: Progress, seconds_left: float | None) -> str:
    """How far a stage of some work is, as Markdown."""
    of = f" of {Path(progress.model).name}" if progress.model else ""
    text = (
        f"{progress.stage[:1].upper()}{progress.stage[1:]}{of}: {progress.done:,} of "
        f"{progress.total:,} {progress.unit}"
    )
    if progress.done < progress.total and seconds_left is not None:
        text += f", about {duration(seconds_left)} left"
    return choices.plain(text)


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
    from mlem_core.tasks import analyses

    job = analyses.find(job_id, store()) if re.fullmatch(r"[0-9a-zA-Z_-]+", job_id) else None
    if job is None:
        raise InputError(
            "The analysis in this address is not on this machine; run it again on the page "
            "Analysis."
        )
    return job


@st.cache_resource(max_entries=8, show_spinner="Opening the analysis …")
def open_analysis(job_id: str) -> Analysis:
    """A finished analysis, loaded once for all visitors."""
    return find_job(job_id).analysis()


def as_layer(name: str) -> Layer:
    """("minilm", 3) of "minilm:3"."""
    model, _, layer = name.rpartition(":")
    return model, int(layer)


# --- figures -------------------------------------------------------------------------------


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


def profile_table(results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and the importance of each feature, as "mean (sd)" over folds."""
    import pandas as pd

    def mean_sd(values: pd.Series[float]) -> str:
        return f"{values.mean():.3f} ({values.std():.3f})".replace("-", "−")

    by = ["model", "layer"]
    scores = results.scores.groupby(by, sort=False)["rho"].agg(mean_sd).rename("ρ")
    features = list(dict.fromkeys(results.importance["feature"]))
    cells = results.importance.groupby([*by, "feature"], sort=False)["importance"].agg(mean_sd)
    table = pd.concat([scores, cells.unstack()[features]], axis=1)
    return table.reset_index()
