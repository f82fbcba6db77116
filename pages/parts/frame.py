"""The frame of a page: its state and its errors, and what is folded away in it."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.files import is_full
from mlem_core.base.shared import shared
from pages.parts import background, choices, naming, stored, visitor
from pages.parts.wording import plain

SHARED = "shared"  # in an address: the secret of a link that one visitor has made for others


def page(body: Callable[[], None]) -> None:
    """Draw a page; what goes wrong is one sentence in it, the details go to the log."""
    here = Path(body.__code__.co_filename).stem.removesuffix("_page")
    # The address of a canvas is that of a finding; the form keeps what it knows in the session.
    held = {"home": choices.VIEW, "versus": choices.VERSUS}
    attempt(_open_shared)
    choices.sync(here, held.get(here, (*choices.FORM, *choices.VIEW)))
    attempt(background.show_runs)
    attempt(body)
    _keep_what_is_loaded(body.__code__.co_filename)


def _open_shared() -> None:
    """Open the analysis of the link by which the visitor has come, if that is how."""
    secret = st.query_params.get(SHARED)
    if secret is None or shared() is None:
        return
    from mlem_core.tasks import visitors

    # Gone from the address first, so that what is wrong is said once.
    del st.query_params[SHARED]
    st.query_params["analysis"] = visitors.take(secret, stored.store())


@functools.cache
def _keep_what_is_loaded(page: str) -> None:
    """Leave what the first visit of a page has loaded out of later collections of garbage.

    Streamlit collects after every run of a page; looking through all modules each time took longer
    than drawing a figure, and the browser waited for it.
    """
    gc.collect()
    gc.freeze()


def attempt(body: Callable[[], None]) -> None:
    """Draw a part of a page, figures with the user's names; its errors leave the others alone."""
    from mlem_core.figures.naming import naming as named

    try:
        with visitor.while_here(), named(naming.now()):
            body()
    except InputError as error:
        st.error(plain(error), icon=":material/error:")
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error in a page")
        said = "Something unexpected happened; the log of the server has the details."
        if isinstance(error, OSError) and is_full(error):
            said = "The disk of the server is full: free some space."
        st.error(said, icon=":material/error:")


@st.fragment
def alone(body: Callable[[], None]) -> None:
    """A part of a page in which a choice draws nothing but the part anew."""
    attempt(body)


@st.fragment
def folded_part(title: str, icon: str, name: str, body: Callable[[], None]) -> None:
    """A part of a page that is folded away, and drawn only when it is opened."""
    part = st.expander(title, icon=icon, key=f"folded {name}", on_change="rerun")
    if part.open:
        with part:
            attempt(body)
