"""Choices of the user: the URL holds them, so that a link, Back and a reload show the same screen.

Opening another page clears the URL; the session therefore holds the choices too and writes them
back. Streamlit's own `bind="query-params"` (1.67) could not take this over. Its URLs hold labels,
which change when something is renamed, and drop names such as `a=mini-gpt2:6`. A choice makes no
entry of the browser's history there, so that Back does not undo it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import pandas as pd
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.extending import contributions

State = dict[str, list[str]]
T = TypeVar("T")

# What the URL may hold; every one is a list of texts.
FORM = (
    "step", "files",
    *({each.name for each in fields(AnalysisSpec)} - {"features", "ordered", "nominal"}),
)  # fmt: skip
VIEW = (
    "analysis", "features", "show_models", "show_layers", "a", "b", "colour",
    "term", "which", "mapped", "valued",
    "order", "similarity", "detail", "view",
    *(
        name
        for place in (*contributions("screens"), *contributions("panels"))
        for name in place.choices
    ),
)  # fmt: skip
NAMES = (*FORM, *VIEW)
MOST_PILLS = 20
NOTHING = "none"  # stands in the URL for nothing chosen, where that is not the default


def _state() -> State:
    """What is chosen now; what has no entry is at its default."""
    state: State = st.session_state.setdefault("choices", {})
    return state


def sync(page: str, held: Collection[str]) -> None:
    """Take over what the address of a page says, and write back what it lost.

    A link says what it changes. An address that the user went back to says all that its page holds.
    On the page that is shown already, any other address is older than the last choice.

    Parameters
    ----------
    page : its url_path
    held : names of the choices that its address holds
    """
    run = get_script_run_ctx()
    back = run is not None and run.is_history_navigation
    if back or page != st.session_state.get("shown page"):
        state = {k: v for k, v in _state().items() if not (back and k in held)}
        address = {k: st.query_params.get_all(k) for k in NAMES if k in st.query_params}
        st.session_state["choices"] = state | address
    st.session_state["shown page"], st.session_state["held"] = page, held
    _write()


def _write() -> None:
    """Make the URL say what is chosen, in one step: one entry of the browser's history."""
    held = st.session_state["held"]
    before = {name: st.query_params.get_all(name) for name in st.query_params}
    after = {name: values for name, values in before.items() if name not in held}
    after |= {name: values for name, values in _state().items() if name in held}
    if after != before:
        st.query_params.from_dict(after)


def get(name: str) -> list[str] | None:
    """The values of a part of the state; None where it is not set."""
    return _state().get(name)


def get_one(name: str, default: str = "") -> str:
    """The first value of a part of the state."""
    return (get(name) or [default])[0]


def get_whole(name: str, default: T, low: int, high: int) -> int | T:
    """The whole number of a part of the state, or the nearest; the default where it is none."""
    text = get_one(name)
    return min(max(int(text), low), high) if re.fullmatch(r"\d{1,10}", text) else default


def get_many(name: str, options: Sequence[str], default: Sequence[str]) -> list[str]:
    """Options that are chosen; the default where none of them is named."""
    chosen = [option for option in get(name) or () if option in options]
    if chosen or get(name) == [NOTHING]:
        return chosen
    return [option for option in default if option in options]


def put(name: str, values: Sequence[str] | None) -> None:
    """Set a part of the state, in the session and in the URL; None: back to the default."""
    put_all({name: values})


def put_all(texts: Mapping[str, Sequence[str] | None]) -> None:
    """Set several parts, in one step of the browser's history."""
    after = _state() | {name: list(values or ()) for name, values in texts.items()}
    st.session_state["choices"] = {name: values for name, values in after.items() if values}
    _write()


def widget_key(name: str) -> str:
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


def bound(
    key: str, value: Any, change: Callable[[Any], object], *, typed: bool = False
) -> dict[str, Any]:
    """Key and callback of a widget that shows a value which is kept elsewhere.

    Parameters
    ----------
    value : what it shows; so nothing that changes it elsewhere has to tell the widget
    change : gets what the user chose instead
    typed : it is typed, on one page only: what is not finished yet stays as it is
    """
    # The widget of another page with the same key begins empty.
    if not typed or st.session_state.get(key) != value:
        st.session_state[key] = value
    return {"key": key, "on_change": lambda: change(st.session_state[key])}


def remembered(name: str, value: Any, default: Any, *, typed: bool = False) -> dict[str, Any]:
    """Key and callback of a widget of one choice; its default is not in the URL.

    `typed` is as of `bound`.
    """

    def remember(now: Any) -> None:
        texts = _texts(now)
        put(name, None if {*texts} == {*_texts(default)} else texts)

    return bound(widget_key(name), value, remember, typed=typed)


def _texts(value: Any) -> list[str]:
    """The value of a widget as texts of the URL."""
    return [*value] or [NOTHING] if isinstance(value, list) else [str(value).strip()]


def choose_many(
    label: str,
    options: Sequence[str] | Mapping[str, str],
    name: str,
    default: Sequence[str],
    **more: Any,
) -> list[str]:
    """A multiselect that is part of the state; its default is not written into the URL."""
    now = get_many(name, list(options), default)
    more |= _called(options) | remembered(name, now, list(default))
    return list(st.multiselect(label, list(options), **more))


def toggle_many(label: str, titles: Mapping[str, str], name: str, *, help: str) -> list[str]:
    """Chosen options, by `choose_many` with all as the default; a few options are all in sight."""
    options = list(titles)
    if len(options) > MOST_PILLS:
        return choose_many(label, titles, name, options, help=help)
    more = _called({one: plain(title) for one, title in titles.items()})
    more |= remembered(name, get_many(name, options, options), options)
    values = st.pills(label, options, selection_mode="multi", help=help, **more)
    return [option for option in options if option in values]


def _called(options: Sequence[str] | Mapping[str, str]) -> dict[str, Any]:
    return {"format_func": options.__getitem__} if isinstance(options, Mapping) else {}


def choose_one(
    label: str, options: Sequence[str] | Mapping[str, str], name: str, default: str, **more: Any
) -> str:
    """A selectbox that is part of the state; a mapping says what each option is called."""
    value = get_one(name, default)
    more |= _called(options) | remembered(name, value if value in options else default, default)
    return str(st.selectbox(label, list(options), **more))


def text_field(label: str, name: str, default: str = "", **more: Any) -> str:
    """A text field that is part of the state."""
    more |= remembered(name, get_one(name, default), default, typed=True)
    return str(st.text_input(label, **more)).strip()


def whole_number(label: str, name: str, default: int, low: int, high: int, **more: Any) -> int:
    """A whole number that is part of the state."""
    more |= remembered(name, get_whole(name, default, low, high), default, typed=True)
    return int(st.number_input(label, low, high, **more))


def open_job(job_id: str) -> None:
    """Make a job the one that all pages show; what was chosen in another one is forgotten."""
    others = VIEW if get_one("analysis") not in ("", job_id) else ()
    put_all({**dict.fromkeys(others), "analysis": [job_id]})


def reset() -> None:
    """Take back all choices of the shown analysis."""
    put_all(dict.fromkeys(name for name in VIEW if name != "analysis"))


def can_reset() -> bool:
    """Whether another part of the analysis is shown than by default, or another similarity."""
    return any(map(get, ("features", "show_models", "show_layers", "similarity")))


def choose_detail(titles: Mapping[str, str]) -> str:
    """Name of the drawer that is open; "" where none is, or where a second click closed it."""
    now = get_one("detail")
    part = st.segmented_control(
        "Details",
        list(titles),
        format_func=titles.__getitem__,
        label_visibility="collapsed",
        wrap=True,
        **bound(
            widget_key("detail"),
            now if now in titles else None,
            lambda part: put("detail", part and [part]),
        ),
    )
    return str(part or "")


def inform(text: str) -> None:
    """Say why there is nothing to see here."""
    st.info(text, icon=":material/info:")


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&])")
_OPTION = re.compile(r" \(--[a-z][^)]*\)")


def plain(text: object) -> str:
    """Text as it is, for a place that would read it as Markdown.

    What it says in brackets to who uses the command line is left out.
    """
    return _MARKDOWN.sub(r"\\\1", _OPTION.sub("", " ".join(str(text).split())))


def drop_minus_zero(table: pd.DataFrame) -> pd.DataFrame:
    """The table for a screen that shows three digits: what would be shown as -0 is 0."""
    numbers = table.select_dtypes("float")
    shown_as_zero = (numbers < 0) & (numbers > -0.0005)
    return table.assign(**{name: numbers[name].mask(shown_as_zero[name], 0.0) for name in numbers})
