"""The app: page set-up and navigation. `streamlit run app.py` serves it."""

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

# The folder is not called pages: Streamlit would look there first and greet whoever opens the
# address of a screen on a fresh server with "Page not found".
st.navigation(
    [
        st.Page(
            "screens/analysis.py",
            title="Analysis",
            icon=":material/play_circle:",
            url_path="analysis",
            default=True,
        ),
        st.Page(
            "screens/profiles.py",
            title="Profiles",
            icon=":material/show_chart:",
            url_path="profiles",
        ),
        st.Page(
            "screens/similarity.py",
            title="Similarity",
            icon=":material/grid_on:",
            url_path="similarity",
        ),
        st.Page(
            "screens/compare.py",
            title="Compare",
            icon=":material/compare_arrows:",
            url_path="compare",
        ),
        st.Page(
            "screens/stimuli.py",
            title="Stimuli",
            icon=":material/table:",
            url_path="stimuli",
        ),
    ]
).run()
