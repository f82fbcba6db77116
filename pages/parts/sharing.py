"""An analysis that one shows to others, on a shared server: a link that nobody can guess."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.shared import shared
from pages.parts import stored

NAME = "shared"  # in an address: the secret of a link


def take() -> None:
    """Open the analysis of the link by which the visitor has come, if that is how."""
    secret = st.query_params.get(NAME)
    if secret is None or shared() is None:
        return
    from mlem_core.tasks import visitors

    # Gone from the address first, so that what is wrong is said once.
    del st.query_params[NAME]
    st.query_params["analysis"] = visitors.take(secret, stored.store())


def offer(job_id: str) -> None:
    """What makes a link to an analysis, shows it, and takes it back."""
    if shared() is None or job_id == stored.EXAMPLE:
        return
    from mlem_core.tasks import visitors

    store = stored.store()
    secret = visitors.shared_as(job_id, store)
    if not secret:
        st.button(
            "Show to others",
            icon=":material/share:",
            key=f"share {job_id}",
            on_click=partial(_share, job_id),
            help="Makes a link. Whoever has it gets a copy of this analysis, with its stimuli.",
        )
        return
    st.caption("Whoever has this link gets a copy of the analysis, with its stimuli:")
    st.code(f"{_server()}/?{NAME}={secret}", language=None, wrap_lines=True)
    st.button(
        "Take the link back",
        icon=":material/link_off:",
        key=f"unshare {job_id}",
        on_click=partial(visitors.unshare, job_id, store),
        help="The link shows nothing any more; those who have opened it keep their copies.",
    )


def _share(job_id: str) -> None:
    from mlem_core.tasks import visitors

    try:
        visitors.share(job_id, stored.store())
    except InputError as error:
        st.toast(str(error))


def _server() -> str:
    """The address of the server as the browser knows it, with the path it is served under."""
    here = (st.context.url or "").rstrip("/")
    return here.removesuffix("/home")  # the page of the list
