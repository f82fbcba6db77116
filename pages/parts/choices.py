"""What the user has chosen: kept in the URL, so that its address opens the same screen elsewhere.

Clicking on another page clears the URL; the state is therefore kept in the session too and
written back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from pages.parts.wording import plain

# What the URL may hold; every one is a list of texts.
FORM = (
    "step", "stimuli", "sep", "encoding", "decimal", "na", "sheet", "roles", "level", "sample",
    "balance", "sample_seed", "add", "language", "bins",
    "models", "files", "precomputed", "layers", "columns",
    "ordered", "missing", "values", "estimator", "interactions", "distance",
    "special_tokens", "dtype", "folds", "folds_over", "seed",
)  # fmt: skip
VIEW = (
    "analysis", "features", "show_models", "show_layers", "a", "b", "colour", "term", "which",
    "fit", "products", "cells", "baseline", "claim", "limit", "feature", "other", "c",
    "by", "pooled", "correction", "way", "group", "apart", "valued", "at",
)  # fmt: skip

MOST_PILLS = 20


def _state() -> dict[str, list[str]]:
    state: dict[str, list[str]] = st.session_state.setdefault("state", {})
    return state


def sync(written: Sequence[str]) -> None:
    """Take what the URL says, and write back of it what it lost when the page changed."""
    state = _state()
    for name in (*FORM, *VIEW):
        values = st.query_params.get_all(name)
        if values:
            state[name] = values
        elif name in state and name in written:
            st.query_params[name] = state[name]


def get(name: str) -> list[str] | None:
    """The values of a part of the state; None where it is not set."""
    return _state().get(name)


def get_one(name: str, default: str = "") -> str:
    """The first value of a part of the state."""
    return (get(name) or [default])[0]


def put(name: str, values: Sequence[str] | None) -> None:
    """Set a part of the state, in the session and in the URL; None: back to the default."""
    if values is None or list(values) == []:
        _state().pop(name, None)
        if name in st.query_params:
            del st.query_params[name]
    else:
        _state()[name] = list(values)
        st.query_params[name] = list(values)


def key_of(name: str) -> str:
    """Key of the widget that sets a part of the state.

    What belongs to one stimulus set or one analysis has another key in the next: a browser that
    still answers for the old widget is not heard.
    """
    of = ""
    if name in ("columns", "ordered", "values"):
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


def toggle_many(label: str, options: Sequence[str], name: str, help: str) -> list[str]:
    """As `choose_many` with all as the default; a few options are all in sight."""
    if len(options) > MOST_PILLS:
        return choose_many(label, options, name, options, help=help)
    more = _prepare_many(options, name, options)
    chosen = st.pills(label, options, selection_mode="multi", format_func=plain, help=help, **more)
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


def choose_one(label: str, options: Sequence[str], name: str, default: str, **more: Any) -> str:
    """A selectbox that is part of the state."""
    key = key_of(name)
    chosen = st.session_state.get(key, get_one(name, default))
    st.session_state[key] = chosen if chosen in options else default
    return str(st.selectbox(label, options, **_remembered(name, default), **more))


def write(label: str, name: str, default: str = "", **more: Any) -> str:
    """A text field that is part of the state."""
    st.session_state.setdefault(key_of(name), get_one(name, default))
    return str(st.text_input(label, **_remembered(name, default, str.strip), **more)).strip()


def number(label: str, name: str, default: int, low: int, high: int, **more: Any) -> int:
    """A whole number that is part of the state."""
    text = get_one(name, str(default))
    value = int(text) if re.fullmatch(r"\d{1,9}", text) else default
    st.session_state.setdefault(key_of(name), min(max(value, low), high))
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
    put(name, values)
    st.session_state.pop(key_of(name), None)


def open_job(job_id: str) -> None:
    """Make a job the one that all pages show; what was chosen in another one is forgotten."""
    if job_id != get_one("analysis"):
        for name in VIEW:
            choose_now(name, None)
    choose_now("analysis", [job_id])
