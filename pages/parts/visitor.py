"""Visitors: on a shared server each browser is one of its own, with a store of its own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import StopException, get_script_run_ctx

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cancelled_by
from mlem_core.base.room import shared

P = ParamSpec("P")
T = TypeVar("T")

COOKIE = "mlem_visitor"  # given by `scripts/shared_server.py`
_KEY = "visitor"
# For what is called when no page is drawn: who had it drawn.
_bound: ContextVar[str] = ContextVar("visitor", default="")


def token_now() -> str:
    """The token of the visitor whose page is drawn; empty where the server is one's own.

    A browser that keeps no cookie, or has one that this server has not given, is another visitor
    each time that it loads a page.

    Raises
    ------
    InputError
        No page is drawn, and nobody has had it called.
    """
    if shared() is None:
        return ""
    if _bound.get():
        return _bound.get()
    if get_script_run_ctx() is None:
        raise InputError("nobody asks for this; load the page again.")
    token = st.context.cookies.get(COOKIE) or ""
    if not _is_given(token):
        from mlem_core.storage.store import Store
        from mlem_core.tasks.visitors import new_token

        token = st.session_state.get(_KEY) or new_token(Store().root)
        st.session_state[_KEY] = token
    return token


# Asked for a hundred times a page.
@functools.lru_cache(maxsize=1024)
def _is_given(token: str) -> bool:
    from mlem_core.storage.store import Store
    from mlem_core.tasks.visitors import is_given

    return is_given(token, Store().root)


def address() -> str:
    """The network address of the visitor whose page is drawn; empty where no page is drawn."""
    if get_script_run_ctx() is None:
        return ""
    return st.context.ip_address or "here"  # Streamlit says None of this machine's own


def token_bound(call: Callable[P, T]) -> Callable[P, T]:
    """`call`, to be made later and elsewhere for the visitor who is here now."""
    who = token_now()

    def later(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _bound.set(who)
        try:
            return call(*args, **kwargs)
        finally:
            _bound.reset(token)

    return later if who else call


def while_here() -> contextlib.AbstractContextManager[None]:
    """Stop what is computed meanwhile when the window is closed: nobody would see it."""
    run = get_script_run_ctx()
    if run is None or not runtime.exists():
        return contextlib.nullcontext()
    window, server = run.session_id, runtime.get_instance()

    def look() -> None:
        if not server.is_active_session(window):
            raise StopException

    return cancelled_by(look)
