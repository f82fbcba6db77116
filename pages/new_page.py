"""A new analysis: a flow of three steps, and Run in sight of each."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from mlem_core.analysis.backends import default_address
from mlem_core.analysis.planning import Cost, estimate_cost
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.text import listed, many
from mlem_core.stimuli.table_warnings import Lint
from mlem_core.tasks.access import view_only
from pages.form import models, read, roles, state
from pages.form.draft import Draft, draft
from pages.parts import background, frame
from pages.parts.choices import duration, inform, plain
from pages.parts.screens import SCREENS

TITLES = {"read": "Read", "roles": "Roles", "models": "Models"}
_HELP = {
    "read": "Which stimuli, and how their file is read.",
    "roles": "What each column is, automatic features, and the checks.",
    "models": "Models, files of representations, and how it is computed.",
}


# A file that the browser itself refuses (too large) is never heard of here: as long as it is shown,
# there is no way on.
_REFUSED = '.stApp:has([data-testid="stFileChip"][aria-invalid="true"])'
# Nor of one that is on its way. One of a single step is lost when the step goes.
_COMING = '[data-testid="stFileChipIconSpinner"]'
# The files of the first step show in the others as long as they are on their way.
_AWAY = """[data-testid="stLayoutWrapper"]:has(> .st-key-form-upload):not(:has(
  [data-testid="stFileChip"])) { display: none; }"""


def _style() -> str:
    """The bar stays in sight, and gives way to the message on a missing file."""
    theme = st.context.theme.type or "light"
    behind, line = (
        st.get_option(f"theme.{theme}.{color}Color") for color in ("background", "border")
    )
    return f"""<style>
[data-testid="stLayoutWrapper"]:has(> .st-key-form-bar) {{
  position: sticky; bottom: 0; z-index: 90;
}}
.st-key-form-bar {{
  padding: 0.75rem 0; background: {behind}; border-top: 1px solid {line};
}}
.st-key-form-refused, .st-key-form-coming {{ display: none; }}
{_REFUSED} .st-key-form-refused, .stApp:has({_COMING}) .st-key-form-coming {{ display: block; }}
{_REFUSED} .st-key-form-ways, .stApp:has({_COMING}) .st-key-form-ways {{ display: none; }}
{_REFUSED} .st-key-form-steps {{ display: none; }}
.stApp:has(.st-key-form-step {_COMING}) .st-key-form-steps {{ visibility: hidden; }}
{"" if state.step() == "read" else _AWAY}
</style>"""


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
        for number, name in enumerate(state.STEPS, start=1):
            with st.container(gap="xsmall"):
                st.button(
                    f"{number} {TITLES[name]}",
                    key=f"step {name}",
                    type="primary" if name == state.step() else "secondary",
                    icon=":material/error:" if wrong[name] else None,
                    on_click=partial(state.show_step, name),
                    width="stretch",
                    help=_HELP[name],
                )
                st.caption(_summary(name, now, lint))
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
        cost = estimate_cost(spec, now.stimuli, lint.n_columns, shapes, n_layers)
    _bar(now, wrong, cost, spec)


def _summary(name: str, now: Draft, lint: Lint | None) -> str:
    """What is chosen in a step."""
    if name == "read":
        return plain(now.label if now.base is None else f"{now.label}, {len(now.base):,} stimuli")
    if name == "models":
        return plain(_systems() or "none yet")
    if now.stimuli is None:
        return "not yet"
    features = many(len(now.stimuli.features) + len(now.later), "feature")
    return features if lint is None or not lint.counts else f"{features}, {lint.counts}"


def _systems() -> str:
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
        place = state.STEPS.index(state.step())
        with st.container(horizontal=True, vertical_alignment="center", key="form ways"):
            if place:
                _way("Back", state.STEPS[place - 1], ":material/arrow_back:")
            if place + 1 < len(state.STEPS):
                after = state.STEPS[place + 1]
                _way(f"Next: {TITLES[after]}", after, ":material/arrow_forward:", kind="primary")
            run = st.button(
                "Run",
                type="primary" if place + 1 == len(state.STEPS) else "secondary",
                icon=":material/play_arrow:",
                disabled=any(wrong.values()),
                help="Runs in the background; you may leave this page. What an earlier run left in "
                "the store is used again.",
            )
            st.markdown(_what_runs(now, wrong, cost), width="stretch")
    if run and spec is not None:
        frame.attempt(partial(background.start_analysis, spec))


def _way(label: str, to: str, icon: str, kind: Any = "secondary") -> None:
    st.button(
        label,
        icon=icon,
        icon_position="right" if label.startswith("Next") else "left",
        type=kind,
        on_click=partial(state.show_step, to),
        help=_HELP[to],
    )


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
    text = f"Runs {plain(_systems())} on {on}. Computes on {plain(where)}."
    if cost is not None:
        takes = f"About {duration(cost.seconds)} and {models.size_text(cost.n_bytes)} of disk"
        offers = [offer for offer in models.offers() if offer.where != "away"]
        if fetched := sum(offer.n_bytes or 0 for offer in offers):
            takes += f", after {models.size_text(fetched)} from the hub"
        text += f"  \n:small[:gray[{plain(takes)}; less where parts are cached.]]"
    return text


frame.page("new", new_body)
