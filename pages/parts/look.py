"""What the theme cannot say of how the pages look."""

from __future__ import annotations

import streamlit as st

# In order: nothing stretches over a very wide window; figures of squares, which are as large as
# they are high, do not stand far apart; text has lines that one can read; a message does not cover
# what is at the top of a page; the links at the foot, which lead to one page, are not all of them
# the page that one is on; the head of a table whose columns stand below each other is no head;
# links and the small buttons over a table show that they have the focus; what is chosen is as easy
# to read as a link.
_STYLE = """<style>
[data-testid="stMainBlockContainer"] { max-width: 1680px; margin-inline: auto; }
.st-key-figure-layer-map, .st-key-figure-why-layers, .st-key-figure-similarity-differences {
  max-width: 1080px;
}
.st-key-docs-text { max-width: 56rem; }
[data-testid="stToastContainer"] { top: auto; bottom: 1rem; }
.st-key-foot a:not(:hover) { background: transparent; }
.st-key-foot a p { font-weight: inherit; }
@media (max-width: 760px) { .st-key-roles-head { display: none; } }
.stSidebar a:focus-visible, [data-testid="stElementToolbar"] button:focus-visible {
  outline: 2px solid #3380b2; outline-offset: -2px;
}
button[data-variant][data-selected="true"], button[data-variant][data-selected="true"] p {
  color: LINK;
}
</style>"""


def same() -> None:
    """Give every page the same look."""
    link = st.get_option(f"theme.{st.context.theme.type or 'light'}.linkColor")
    st.html(_STYLE.replace("LINK", str(link)))
