"""The app: page set-up and navigation. `make app` serves it."""

from __future__ import annotations

import streamlit as st

# Three bars of a profile, drawn here: Streamlit would fetch an icon of its own from the network.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
    '<rect x="3" y="11" width="4" height="10" fill="#0072B2"/>'
    '<rect x="10" y="3" width="4" height="18" fill="#D55E00"/>'
    '<rect x="17" y="8" width="4" height="13" fill="#009E73"/></svg>'
)
st.set_page_config(page_title="MLEM Explorer", page_icon=ICON, layout="wide")

# Each url_path differs from its file's stem: otherwise a bare `streamlit run app.py` would run a
# page that is opened by its address on a fresh server without this file.
st.navigation(
    [
        st.Page(
            "pages/analysis_page.py",
            title="Analysis",
            icon=":material/play_circle:",
            url_path="analysis",
            default=True,
        ),
        st.Page(
            "pages/profiles_page.py",
            title="Profiles",
            icon=":material/show_chart:",
            url_path="profiles",
        ),
        st.Page(
            "pages/similarity_page.py",
            title="Similarity",
            icon=":material/grid_on:",
            url_path="similarity",
        ),
        st.Page(
            "pages/compare_page.py",
            title="Compare",
            icon=":material/compare_arrows:",
            url_path="compare",
        ),
        st.Page(
            "pages/why_page.py",
            title="Why alike",
            icon=":material/account_tree:",
            url_path="why",
        ),
        st.Page(
            "pages/robustness_page.py",
            title="Robustness",
            icon=":material/verified:",
            url_path="robustness",
        ),
        st.Page(
            "pages/stimuli_page.py",
            title="Stimuli",
            icon=":material/table:",
            url_path="stimuli",
        ),
    ]
).run()
