"""A new analysis: a flow of three steps, and Run in sight of each."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from mlem_core.analysis.backends import default_address
from mlem_core.analysis.planning import Cost, estimate_cost
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.text import duration, listed, many
from mlem_core.tasks.access import view_only
from mlem_core.tasks.run_plan import read_speeds
from pages.form import models, read, roles, state
from pages.form.draft import Draft, draft
from pages.parts import background, frame, stored
from pages.parts.choices import inform, plain
from pages.parts.screens import SCREENS

# The files of the first step show in the others as long as they are on their way.
_AWAY = """[data-testid="stLayoutWrapper"]:has(> .st-key-form-upload):not(:has(
  [data-testid="stFileChip"])) { display: none; }"""


def _style() -> str:
    """The bar stays in sight, and gives way to the message on a missing file."""
    css = Path(__file__).with_name("form").joinpath("bar.css").read_text("utf-8")
    for color in ("background", "border"):
        theme = st.context.theme.type or "light"
        css = css.replace(f"{color}-color", str(st.get_option(f"theme.{theme}.{color}Color")))
    return f"<style>{css}{'' if state.step() == 'read' else _AWAY}</style>"


def new_body() -> None:
    st.html(_style())
    st.title(SCREENS["new"].title)
    if view_only():
        inform("This server only shows finished analyses: nothing can be uploaded or run here.")
        return
    now = draft()
    options, wrong_option = state.chosen_options(now.stimuli)
    files = models.file_contents(now, options["distance"])
    lint, amiss = roles.check_draft(now, options)
    wrong = {
        "read": state.refused_upload("stimuli") or (now.error if now.at == "read" else ""),
        "roles": (now.error if now.at == "roles" else "") or amiss,
        "models": wrong_option or models.models_wrong(files),
    }
    spec = None
    if not any(wrong.values()):
        try:
            spec = models.build_spec(now, options)
            spec.check()
        except InputError as error:
            wrong["models"] = str(error)
    with st.container(horizontal=True, key="form steps"):
        for number, (name, (title, help)) in enumerate(state.STEPS.items(), start=1):
            with st.container(gap="xsmall"):
                st.button(
                    f"{number} {title}",
                    key=f"step {name}",
                    type="primary" if name == state.step() else "secondary",
                    icon=":material/error:" if wrong[name] else None,
                    on_click=partial(state.show_step, name),
                    width="stretch",
                    help=help,
                )
                st.caption(plain(_summary(name, now)))
    with st.container(key="form upload"):
        read.stimuli_uploader()
    with st.container(key="form step"):
        if state.step() == "read":
            read.show_reading(now)
        elif state.step() == "roles":
            roles.show_roles(now, lint, wrong["roles"])
        else:
            models.show_models(now, files, wrong["models"])
    cost = None
    if spec is not None and lint is not None:
        assert now.stimuli is not None
        shapes = {offer.name: offer.shape for offer in models.offers() if offer.where != "away"}
        n_layers = [len(content.names) for content in files.values()]
        speeds = read_speeds(stored.store())
        cost = estimate_cost(spec, now.stimuli, lint.n_columns, shapes, n_layers, speeds)
    _bar(now, wrong, cost, spec)


def _summary(name: str, now: Draft) -> str:
    """What is chosen in a step."""
    if name == "read":
        return now.label if now.base is None else f"{now.label}, {len(now.base):,} stimuli"
    if name == "models":
        return _models() or "none yet"
    if now.stimuli is None:
        return "not yet"
    return many(len(now.stimuli.features) + len(now.later), "feature")


def _models() -> str:
    """The models and files that are chosen, or how many they are."""
    names = [*models.chosen_models(), *state.pairs("files")]
    return many(len(names), "model") if len(names) > 2 else listed(names)


def _bar(now: Draft, wrong: dict[str, str], cost: Cost | None, spec: AnalysisSpec | None) -> None:
    """Back, Next and Run, and what Run would do."""
    with st.container(key="form bar"):
        with st.container(key="form refused"):
            st.error(
                "The browser has refused a file, which is not used: take it away above, or upload "
                "another one.",
                icon=":material/error:",
            )
        with st.container(key="form coming"):
            st.info(
                "A file is on its way: nothing runs before it is there, and it is lost where you "
                "leave this page.",
                icon=":material/upload:",
            )
        steps = list(state.STEPS)
        place = steps.index(state.step())
        with st.container(horizontal=True, vertical_alignment="center", key="form ways"):
            for to in {place - 1, place + 1} & {*range(len(steps))}:
                title, help = state.STEPS[steps[to]]
                st.button(
                    "Back" if to < place else f"Next: {title}",
                    icon=f":material/arrow_{'back' if to < place else 'forward'}:",
                    icon_position="left" if to < place else "right",
                    on_click=partial(state.show_step, steps[to]),
                    help=help,
                )
            run = st.button(
                "Run",
                type="primary",
                icon=":material/play_arrow:",
                disabled=any(wrong.values()),
                help="Runs in the background; you may leave this page. What an earlier run left in "
                "the store is used again.",
            )
            intervals = st.checkbox(
                "Intervals and chance",
                value=True,
                help="Computes confidence intervals and compares with chance once the result is "
                "there, which opens before.",
            )
            st.markdown(_what_runs(now, wrong, cost), width="stretch")
    if run and spec is not None:
        frame.attempt(partial(background.start_analysis, spec, intervals=intervals))


def _what_runs(now: Draft, wrong: dict[str, str], cost: Cost | None) -> str:
    """Effect of Run, or the reason why it does nothing, beside the button."""
    for number, (step, text) in enumerate(wrong.items(), start=1):
        if text and step == state.step():
            return ":material/block: Fix this to run."
        if text:
            return f":material/block: Fix step {number} to run: {plain(text)}"
    assert now.stimuli is not None
    on = f"{plain(now.label)} ({len(now.stimuli):,} stimuli)"
    where = default_address() or f"this machine ({many(cores(), 'core')})"
    text = f"Runs {plain(_models())} on {on}. Computes on {plain(where)}."
    if cost is not None:
        takes = f"About {duration(cost.seconds)} and {models.size_text(cost.n_bytes)} of disk"
        offers = [offer for offer in models.offers() if offer.where != "away"]
        if fetched := sum(offer.n_bytes or 0 for offer in offers):
            takes += f", after {models.size_text(fetched)} from the hub"
        text += f"  \n:small[:gray[{plain(takes)}; less where parts are cached.]]"
    return text


frame.page("new", new_body)
