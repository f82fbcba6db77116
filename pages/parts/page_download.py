"""The analysis as one HTML page, made in the background, and downloaded."""

from __future__ import annotations

import streamlit as st

from mlem_core.extensions.web_page.stage import PAGE
from pages.parts import stored
from pages.parts.opening import offer_file
from pages.parts.view import View


def offer_page(view: View) -> None:
    """A button that makes the page, or downloads it."""
    if (pair := view.chosen_pair) is None:
        return
    st.markdown(
        "One HTML page that anybody can open, without this program and without a network: the "
        "canvas with every two layers, profiles, tables, methods."
    )
    stimuli = st.toggle(
        "With the stimuli",
        value=True,
        key="page stimuli",
        help="Their words and sentences; without them the values of their features stay.",
    )
    title = stored.analysis_names().get(view.job_id, view.job_id)
    more = {"a": pair[0], "b": pair[1], "stimuli": stimuli, "title": title}
    options = view.selection.to_dict() | more
    help = "Explains every two layers in the background; a minute for 50 layers."
    labels = "Make the page", "Download the page"
    offer_file(view, "page", labels, options, PAGE, help)
