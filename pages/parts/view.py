"""The analysis that a view shows, and what the user keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import background, capsules, choices, prefetch
from pages.parts import shared as screen

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.results import Results
    from mlem_core.analysis.selection import Selection
    from mlem_core.base.typing import Layer
    from mlem_core.tasks.analyses import Job


# With more features than this what one click may ask for is not prefetched.
MOST_PREFETCHED = 12


@st.cache_resource(max_entries=256, show_spinner=False)
def _results(job_id: str, selection: Selection) -> Results | None:
    """The tables; None where they take long and are not kept yet."""
    from mlem_core.analysis import cached_fits

    analysis = screen.open_analysis(job_id)
    if selection.estimator in cached_fits.SLOW:
        return cached_fits.find(analysis, screen.store(), selection)
    return analysis.results_of(selection)


@dataclass(frozen=True)
class View:
    """The analysis that a view shows, and what the user keeps of it.

    Attributes
    ----------
    job_id : of the analysis
    analysis : as loaded
    selection : what the user keeps of it
    """

    job_id: str
    analysis: Analysis
    selection: Selection

    @property
    def features(self) -> list[str]:
        """Kept by the user, in the order of the analysis."""
        return list(self.selection.features)

    @property
    def layers(self) -> list[Layer]:
        """(model, layer) kept by the user."""
        return list(self.selection.layers)

    @property
    def all_features(self) -> list[str]:
        """Of the analysis, in its order; their place decides the colours."""
        return [feature.name for feature in self.analysis.stimuli.features]

    @property
    def layer_names(self) -> list[str]:
        """ "model:layer" of each kept layer."""
        return [f"{model}:{layer}" for model, layer in self.layers]

    def results(self) -> Results | None:
        """The tables for what is kept; None while they are computed (which is shown)."""
        prefetch.stop()
        found = _results(self.job_id, self.selection)
        if found is None:
            # Not kept in memory, so that the next look finds what was computed meanwhile.
            _results.clear(self.job_id, self.selection)
            self._compute()
        else:
            prefetch.prepare(
                [partial(_results, self.job_id, one) for one in self._one_click_away()]
            )
        return found

    def _one_click_away(self) -> list[Selection]:
        """What is selected after a feature is ticked on or off, where that is quick."""
        from mlem_core.analysis import cached_fits

        names = self.all_features
        if (
            self.selection.estimator in cached_fits.SLOW
            or self.selection.interactions
            or len(names) > MOST_PREFETCHED
        ):
            return []
        near = [[n for n in names if (n in self.features) != (n == one)] for one in names]
        return [replace(self.selection, features=tuple(one)) for one in near if one]

    def _compute(self) -> None:
        from mlem_core.tasks import followups

        options = self.selection.to_dict()
        st.info(
            f"The estimator {self.selection.estimator} takes about a second a layer. It is "
            "computed once; after that every look is quick.",
            icon=":material/hourglass:",
        )
        task = followups.find("fits", self.job_id, options, screen.store())
        if not task.folder.exists():
            followups.start("fits", self.job_id, options, screen.store())
        background.offer(
            "fits",
            self.job_id,
            options,
            "Fit the metric models",
            "Fits every layer that is shown, in the background.",
        )

    @property
    def pair(self) -> tuple[str, str]:
        """The two layers "model:layer" that Compare and Why alike look at."""
        defaults = _first_look(self)
        a, b = (choices.get_one(name, one) for name, one in zip("ab", defaults, strict=True))
        there = self.layer_names
        return a if a in there else defaults[0], b if b in there else defaults[1]

    def caption(self, results: Results) -> str:
        """How and on how much the results are computed, for a caption."""
        how = {"ridge": "non-negative ridge regression"}.get(
            self.selection.estimator, f"estimator {self.selection.estimator}"
        )
        if self.selection.interactions:
            how += " with interactions, of which those that matter most are drawn (the CSV has all)"
        missing = ""
        if has_missing(self.analysis):
            what = {"ignore": "at no distance to any value", "level": "a value of their own"}
            missing = f"; missing values are {what[self.analysis.spec.missing]}"
        return (
            f"Fitted with {how}{missing}. Computed on {results.n_stimuli:,} stimuli, "
            f"{results.n_pairs:,} pairs, {results.n_folds} folds."
        )


def open_view(title: str, lead: str, *, layers: bool = True) -> View | None:
    """Head and sidebar of a view; None where there is nothing to show yet (and it is said)."""
    from mlem_core.tasks import analyses

    head = st.container(horizontal=True, vertical_alignment="center")
    head.title(title, width="content")
    st.markdown(lead)
    recent = analyses.recent(screen.store())
    done = {job.id: job for job in recent if job.status().state == "done"}
    job_id = choices.get_one("analysis")
    latest = next(iter(done.values()), None)
    if not job_id and screen.EXAMPLE in done:
        choices.open_job(screen.EXAMPLE)
        job_id = screen.EXAMPLE
    if not job_id:
        _nothing_yet(latest)
        return None
    if job_id not in done:
        try:
            job = screen.find_job(job_id)
        except InputError as error:
            st.error(choices.plain(error), icon=":material/error:")
            _ways_on(latest)
            return None
        state = job.status().state
        if state != "done":
            _not_done(state, latest)
            return None
        done[job_id] = job
    with st.sidebar:
        key = choices.key_of("which analysis")
        st.session_state[key] = job_id
        st.selectbox(
            "Analysis",
            list(done),
            format_func=_labels(done).get,
            key=key,
            on_change=lambda: choices.open_job(st.session_state[key]),
            help="Which of the finished analyses is shown. A new one is started on the page "
            "Analysis.",
        )
        analysis = screen.open_analysis(job_id)
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
        estimator, interactions, missing = _chosen_method(analysis)
    if job_id == screen.EXAMPLE:
        _about_the_example(analysis)
    if analysis.notices:
        many = f"{len(analysis.notices)} notes" if len(analysis.notices) > 1 else "1 note"
        with st.expander(f"{many} on this analysis", icon=":material/info:"):
            for notice in analysis.notices:
                st.markdown(f"- {choices.plain(notice)}")
    if not features or not kept:
        what = "feature" if not features else "model and one layer"
        st.info(f"Choose at least one {what} in the sidebar.", icon=":material/info:")
        return None
    if missing != analysis.spec.missing:
        other = _with_missing(job_id, missing)
        if other is not None:
            job_id, analysis = other, screen.open_analysis(other)
    there = set(analysis.layers)
    from mlem_core.analysis.selection import Selection

    view = View(
        job_id,
        analysis,
        Selection(
            tuple(name for name in names if name in features),
            tuple(layer for layer in kept if layer in there),
            estimator,
            interactions,
        ),
    )
    with head:
        capsules.offer(view.job_id, view.selection, view.pair)
    return view


def whole_view(job_id: str) -> View:
    """A finished analysis with everything in it, as it was run."""
    analysis = screen.open_analysis(job_id)
    return View(job_id, analysis, analysis.select())


def _about_the_example(analysis: Analysis) -> None:
    models = {model for model, _ in analysis.layers}
    with st.container(border=True):
        text, button = st.columns([5, 1.5], vertical_alignment="center")
    text.markdown(
        f"This is an example: {len(analysis.stimuli):,} words in their sentences, each with "
        f"{len(analysis.stimuli.features)} features, in {len(analysis.layers)} layers of "
        f"{len(models)} models. All of it answers to the choices on the left, as it will for your "
        "own stimuli and models."
    )
    if button.button(
        "Analyse your own",
        type="primary",
        icon=":material/play_circle:",
        width="stretch",
        help="Opens the page Analysis, where stimuli and models are chosen.",
    ):
        st.switch_page(screen.ANALYSIS_PAGE)


def has_missing(analysis: Analysis) -> bool:
    """Whether a feature of the analysis has a missing value."""
    names = [feature.name for feature in analysis.stimuli.features]
    return bool(analysis.stimuli.table[names].isna().to_numpy().any())


def _chosen_method(analysis: Analysis) -> tuple[str, bool, str]:
    """How the metric model is fitted: estimator, interactions, policy for missing values."""
    from mlem_core.estimators.registry import ESTIMATORS
    from mlem_core.pairs.patterns import MISSING

    spec = analysis.spec
    with st.expander("How it is computed", icon=":material/tune:"):
        estimator = choices.choose_one(
            "Estimator",
            list(ESTIMATORS),
            "fit",
            spec.estimator,
            format_func=lambda one: screen.ESTIMATOR_NAMES.get(one, one),
            help="How the metric model is fitted: ridge as in the first paper, the highest rank "
            "correlation as in the second.",
        )
        interactions = choices.choose_one(
            "Interactions",
            ["no", "yes"],
            "products",
            "yes" if spec.interactions else "no",
            help="Whether the metric model weighs products of two features too; importances then "
            "have a line for each.",
        )
        none = not has_missing(analysis)
        missing = choices.choose_one(
            "Missing values",
            MISSING,
            "cells",
            spec.missing,
            format_func=lambda one: screen.MISSING_NAMES.get(one, one),
            disabled=none,
            help="No value is missing here."
            if none
            else "What an empty cell means. Another answer needs other pair tables, which are "
            "made once, in the background, from the representations in the store.",
        )
    return estimator, interactions == "yes", missing


def _with_missing(job_id: str, missing: str) -> str | None:
    """The same analysis with another policy for missing values; None while there is none."""
    from mlem_core.tasks import analyses

    spec = replace(screen.find_job(job_id).spec, missing=missing)
    other = analyses.find(analyses.job_id(spec), screen.store())
    if other is not None and other.status().state == "done":
        return other.id
    if other is None:
        other = analyses.start(spec, screen.store())
    _until_made(other.id)
    return None


@st.fragment(run_every=0.5)
def _until_made(job_id: str) -> None:
    from mlem_core.tasks import analyses

    job = screen.find_job(job_id)
    status = job.status()
    if status.state == "done":
        st.rerun()
    with st.container(border=True):
        if status.state in ("queued", "running"):
            stage = status.stages[-1] if status.stages else None
            share = 0.0 if stage is None else min(1.0, stage.done / max(stage.total, 1))
            how_far = "Starting …" if stage is None else screen.stage(stage, status.seconds_left)
            st.markdown(
                "The other treatment of missing values needs pair tables of its own, which are "
                "made once. Until then the figures below are those of the analysis as it was run."
            )
            st.progress(share, text=how_far)
            if st.button(
                "Cancel", icon=":material/stop_circle:", key=f"cancel {job_id}",
                help="Stops this work; the analysis stays as it is.",
            ):  # fmt: skip
                job.cancel()
                st.rerun()
            return
        if status.state == "failed":
            st.error(choices.plain(status.message), icon=":material/error:")
        if st.button(
            "Make these tables",
            icon=":material/play_arrow:",
            key=f"start {job_id}",
            help="Makes the pair tables for this treatment of missing values, in the background.",
        ):
            analyses.start(job.spec, screen.store())
            st.rerun()


def _labels(done: dict[str, Job]) -> dict[str, str]:
    """What each job is called in a list; the browser answers with it, so no two may be alike."""
    names = {job_id: _name(job) for job_id, job in done.items()}
    again = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {
        job_id: f"{name} · {job_id[:6]}" if name in again else name
        for job_id, name in names.items()
    }


def _name(job: Job) -> str:
    if job.id == screen.EXAMPLE:
        return f"Example: {job.spec.stimuli}, {len(job.spec.models)} models"
    return screen.describe(job.spec)


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
                f"Open {choices.plain(_name(latest))}",
                icon=":material/folder_open:",
                type="primary",
                on_click=lambda: choices.open_job(latest.id),
                help="Shows the latest analysis that is done.",
            )
        st.page_link(screen.ANALYSIS_PAGE, label="Go to Analysis", icon=":material/play_circle:")


def two_layers(view: View) -> tuple[str, str]:
    """The pair of layers "model:layer" that Compare and Why alike look at."""
    one, other = _first_look(view)
    first, second = st.columns(2)
    with first:
        a = choices.choose_one(
            "First layer",
            view.layer_names,
            "a",
            one,
            format_func=screen.layer_label,
            help="One of the two layers that are compared.",
        )
    with second:
        b = choices.choose_one(
            "Second layer",
            view.layer_names,
            "b",
            other,
            format_func=screen.layer_label,
            help="The other one.",
        )
    return a, b


def _first_look(view: View) -> tuple[str, str]:
    """The two layers that are looked at before any are chosen."""
    if view.job_id == screen.EXAMPLE:
        from mlem_core.tasks.examples import PAIR

        if set(PAIR) <= set(view.layers):
            (one, m), (other, n) = PAIR
            return f"{one}:{m}", f"{other}:{n}"
    return _middle(view, 0), _middle(view, -1)


def _middle(view: View, which: int) -> str:
    """The middle layer of the first or the last model (of one model: the last layer)."""
    models = list(dict.fromkeys(model for model, _ in view.layers))
    of = [layer for model, layer in view.layers if model == models[which]]
    at = -1 if which == -1 and len(models) == 1 else len(of) // 2
    return f"{models[which]}:{of[at]}"
