"""What the user has chosen: kept in the URL, so that its address opens the same screen elsewhere.

Clicking on another page clears the URL; the state is therefore kept in the session too and
written back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts.history import History, Query, State
from pages.parts.wording import plain

# What the URL may hold; every one is a list of texts.
FORM = (
    "step", "stimuli", "sep", "encoding", "decimal", "na", "sheet", "roles", "level", "sample",
    "balance", "sample_seed", "add", "language", "bins", "vectors", "rdms",
    "models", "files", "precomputed", "first_column", "groups", "labels", "trajectories", "layers",
    "missing", "values", "estimator", "interactions", "distance", "special_tokens", "dtype",
    "folds", "folds_over", "seed", "pairs", "device", "pooling", "positions", "units",
)  # fmt: skip
VIEW = (
    "analysis", "features", "show_models", "show_layers", "a", "b", "colour", "within",
    "term", "which", "mapped",
    "fit", "products", "cells", "baseline", "claim", "limit", "feature", "other", "c",
    "noisy", "by", "depth", "pooled", "correction", "way", "group", "apart", "valued", "at",
    "order", "marks", "partial", "similarity",
)  # fmt: skip
# Which part of a page is drawn: the same for every analysis.
PLACE = ("tab", "look")
# The two analyses that are compared.
VERSUS = ("versus",)

MOST_PILLS = 20


NAMES = (*FORM, *VIEW, *PLACE, *VERSUS)


def _history() -> History:
    history: History = st.session_state.setdefault("history", History())
    return history


def sync(page: str, held: Sequence[str]) -> None:
    """Take what the URL says, and write back of it what it lost when the page changed.

    Where the user came back to an address, the page shows again what it showed there.

    Parameters
    ----------
    page : its url_path
    held : what its URL holds
    """
    history = _history()
    before, of = history.state, st.session_state.setdefault("held", {})
    of["page"], of["names"] = page, tuple(held)
    came_back = history.arrive(page, _query(), held, back=_went_back())
    _forget_widgets(before, history.state)
    if not came_back:
        _write()
    history.leave(page, _query())


def _went_back() -> bool:
    """Whether the page is run because the user went to an address by Back or Forward."""
    run = get_script_run_ctx()
    return run is not None and run.is_history_navigation


def _query() -> Query:
    """What the URL says of the choices."""
    there = sorted({*NAMES} & {*st.query_params})
    said = ((name, tuple(st.query_params.get_all(name))) for name in there)
    return tuple((name, values) for name, values in said if values)


def _write() -> None:
    """Make the URL say what is chosen: in one step, which is one entry of the browser's history."""
    state, held = _history().state, st.session_state.get("held", {}).get("names", NAMES)
    here = {name: state[name] for name in held if name in state}
    if {name: list(values) for name, values in _query() if name in held} != here:
        others = {
            name: st.query_params.get_all(name) for name in st.query_params if name not in held
        }
        st.query_params.from_dict({**others, **here})


def _forget_widgets(before: State, after: State) -> None:
    """Widgets of what is other than it was show it."""
    analyses = {one.get("analysis", [""])[0] for one in (before, after)}
    for name in NAMES:
        if before.get(name) != after.get(name):
            for of in (*analyses, get_one("stimuli"), ""):
                st.session_state.pop(f"choice {name} {of}", None)


def get(name: str) -> list[str] | None:
    """The values of a part of the state; None where it is not set."""
    return _history().state.get(name)


def get_one(name: str, default: str = "") -> str:
    """The first value of a part of the state."""
    return (get(name) or [default])[0]


def put(name: str, values: Sequence[str] | None) -> None:
    """Set a part of the state, in the session and in the URL; None: back to the default."""
    _put({name: values})


def _put(chosen: Mapping[str, Sequence[str] | None], *, step: bool = True) -> None:
    history = _history()
    if history.choose(chosen, step=step):
        _write()
        history.leave(st.session_state.get("held", {}).get("page", ""), _query())


def key_of(name: str) -> str:
    """Key of the widget that sets a part of the state.

    What belongs to one stimulus set or one analysis has another key in the next: a browser that
    still answers for the old widget is not heard.
    """
    of = ""
    if name == "values":
        of = get_one("stimuli")
    elif name in VIEW:
        of = get_one("analysis")
    return f"choice {name} {of}"


NOTHING = "none"  # stands in the URL for nothing chosen, where that is not the default


def choose_many(
    label: str, options: Sequence[str], name: str, default: Sequence[str], **more: Any
) -> list[str]:
    """A multiselect that is part of the state; its default is not written into the URL."""
    known = None if more.get("accept_new_options") else options
    more |= _prepare_many(known, name, default)
    return list(st.multiselect(label, options, **more))


def choose_any(
    label: str, options: Sequence[str], name: str, default: Sequence[str], **more: Any
) -> list[str]:
    """As `choose_many` where none is a choice too, and a default that changes is followed."""
    key, chosen = key_of(name), get(name)
    if chosen is None:
        st.session_state[key] = [one for one in default if one in options]
    elif key not in st.session_state:
        st.session_state[key] = [one for one in chosen if one in options]

    def remember() -> None:
        now = st.session_state[key]
        put(name, None if set(now) == set(default) else now or [NOTHING])

    more |= {"key": key, "on_change": remember}
    return list(st.multiselect(label, options, **more))


def toggle_many(
    label: str, options: Sequence[str], name: str, called: Callable[[str], str], *, help: str
) -> list[str]:
    """As `choose_many` with all as the default; a few options are all in sight.

    Parameters
    ----------
    called : gives what an option is called
    """
    if len(options) > MOST_PILLS:
        return choose_many(label, options, name, options, format_func=called, help=help)
    more = _prepare_many(options, name, options)
    more |= {"format_func": lambda one: plain(called(one)), "help": help}
    chosen = st.pills(label, options, selection_mode="multi", **more)
    return [option for option in options if option in chosen]


def _prepare_many(
    options: Sequence[str] | None, name: str, default: Sequence[str]
) -> dict[str, Any]:
    """Key and callback of a widget of many; without `options` any text may be chosen."""
    key = key_of(name)
    first = [one for one in get(name) or [] if options is None or one in options] or list(default)
    chosen = st.session_state.get(key, first)
    st.session_state[key] = [one for one in chosen if options is None or one in options]

    def remember() -> None:
        now = st.session_state[key]
        put(name, None if set(now) == set(default) else now)

    return {"key": key, "on_change": remember}


def choose_one(
    label: str, options: Sequence[str] | Mapping[str, str], name: str, default: str, **more: Any
) -> str:
    """A selectbox that is part of the state; a mapping says what each option is called."""
    key = key_of(name)
    if isinstance(options, Mapping):
        more["format_func"] = options.__getitem__
    chosen = st.session_state.get(key, get_one(name, default))
    st.session_state[key] = chosen if chosen in options else default
    return str(st.selectbox(label, list(options), **_remembered(name, default), **more))


def write(label: str, name: str, default: str = "", **more: Any) -> str:
    """A text field that is part of the state."""
    st.session_state.setdefault(key_of(name), get_one(name, default))
    return str(st.text_input(label, **_remembered(name, default, str.strip), **more)).strip()


def whole(name: str, default: int, low: int, high: int) -> int:
    """The whole number of a part of the state, or the nearest; the default where it is none."""
    text = get_one(name)
    return min(max(int(text) if re.fullmatch(r"\d{1,10}", text) else default, low), high)


def number(label: str, name: str, default: int, low: int, high: int, **more: Any) -> int:
    """A whole number that is part of the state."""
    st.session_state.setdefault(key_of(name), whole(name, default, low, high))
    return int(st.number_input(label, low, high, **_remembered(name, default), **more))


def _remembered(name: str, default: object, text: Callable[[Any], str] = str) -> dict[str, Any]:
    """Key and callback of a widget of one value; the default is not written into the URL."""
    key = key_of(name)

    def remember() -> None:
        now = text(st.session_state[key])
        put(name, None if now == str(default) else [now])

    return {"key": key, "on_change": remember}


def choose_now(name: str, values: Sequence[str] | None) -> None:
    """Set a choice before its widget is drawn; None: back to the default."""
    choose_all_now({name: values})


def choose_all_now(chosen: Mapping[str, Sequence[str] | None], *, step: bool = True) -> None:
    """Set several choices before their widgets are drawn, in one step of the browser's history."""
    before = _history().state
    _put(chosen, step=step)
    _forget_widgets(before, _history().state)
    for name in chosen:
        st.session_state.pop(key_of(name), None)


def open_job(job_id: str, *, step: bool = True) -> None:
    """Make a job the one that all pages show; what was chosen in another one is forgotten.

    Parameters
    ----------
    step : whether the user did it, and may undo it
    """
    others = VIEW if job_id != get_one("analysis") else ()
    choose_all_now({**dict.fromkeys(others), "analysis": [job_id]}, step=step)


def undo() -> None:
    """Take back the last choice among those of a view."""
    changed = _history().undo(VIEW)
    if changed is not None:
        choose_all_now(changed, step=False)


def reset() -> None:
    """Take back all choices of the shown analysis."""
    choose_all_now(dict.fromkeys(name for name in VIEW if name != "analysis"))


def can_undo() -> bool:
    """Whether there is a choice of a view to take back."""
    return _history().can_undo(VIEW)


def can_reset() -> bool:
    """Whether anything of the shown analysis is other than its default."""
    return any(get(name) for name in VIEW if name != "analysis")
