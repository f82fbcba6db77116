"""The frame of a page: the browser's window, the state, the errors, and what is folded away.

Streamlit makes an entry of the browser's history of each change of the address, and one click may
change it several times: to the bare address of a page that is opened, and then to what the page
fills it with. Back would lead from the second to the first, which fills itself again.
"""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Callable

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.files import is_full
from mlem_core.figures.naming import naming as named
from pages.parts import background, choices, screens, stored
from pages.parts.choices import plain


def page(url_path: str, body: Callable[[], None]) -> None:
    """Draw a screen; what goes wrong is one sentence in it, the details go to the log."""
    # The address of a canvas is that of a finding; the form keeps what it knows in the session.
    held = choices.VIEW if url_path == "explore" else (*choices.FORM, *choices.VIEW)
    choices.sync(url_path, held)
    attempt(background.show_runs)
    attempt(body)
    _keep_what_is_loaded(url_path)


def lead(url_path: str) -> None:
    """Open Explore with what an address of an earlier version showed."""
    choices.sync(url_path, choices.VIEW)
    choices.put_all({name: [value] for name, value in screens.MOVED[url_path].items()})
    st.switch_page(screens.SCREENS["explore"].file)


@functools.cache
def _keep_what_is_loaded(url_path: str) -> None:
    """Leave what the first visit of a page has loaded out of later collections of garbage.

    Streamlit collects after every run of a page; looking through all modules each time took longer
    than drawing a figure, and the browser waited for it.
    """
    gc.collect()
    gc.freeze()


def open_dialog(name: str) -> None:
    """Have a dialog open until one closes it, whatever draws the page anew meanwhile."""
    st.session_state["dialog"] = name


def shown_dialog() -> str:
    """The dialog that is open; empty for none."""
    return str(st.session_state.get("dialog", ""))


def close_dialog() -> None:
    """Have no dialog open from the next run on."""
    open_dialog("")


def attempt(body: Callable[[], None]) -> None:
    """Draw a part of a page, figures with the user's names; its errors leave the others alone."""
    try:
        with stored.while_here(), named(stored.names()):
            body()
    except InputError as error:
        st.error(plain(error), icon=":material/error:")
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error in a page")
        sentence = "Something unexpected happened; the log of the server has the details."
        if isinstance(error, OSError) and is_full(error):
            sentence = "The disk of the server is full: free some space."
        st.error(sentence, icon=":material/error:")


@st.fragment
def alone(body: Callable[[], None]) -> None:
    """A part of a page in which a choice draws nothing but the part anew."""
    attempt(body)


@st.fragment
def folded_part(title: str, symbol: str, name: str, body: Callable[[], None]) -> None:
    """A part of a page that is folded away, and drawn only when it is opened."""
    part = st.expander(
        title, icon=f":material/{symbol or 'tune'}:", key=f"folded {name}", on_change="rerun"
    )
    if part.open:
        with part:
            attempt(body)


# What the theme cannot say of how the pages look. In order: nothing stretches over a very wide
# window; figures of squares, which are as large as they are high, do not stand far apart; text has
# lines that one can read; a message does not cover what is at the top of a page; the links at the
# foot, which lead to one page, are not all of them the page that one is on; the head of a table
# whose columns stand below each other is no head; links and the small buttons over a table show
# that they have the focus; what is chosen is as easy to read as a link.
_STYLE = """<style>
[data-testid="stMainBlockContainer"] {
  max-width: 1680px; margin-inline: auto; padding: 4.25rem clamp(1rem, 4vw - .6rem, 4rem) 4rem;
}
.st-key-head { gap: .25rem 1rem; }
[data-testid="stLayoutWrapper"]:has(> .st-key-strip) { position: sticky; top: 3.5rem; z-index: 80; }
.st-key-strip {
  background: GROUND; border-bottom: 1px solid LINE; padding: .4rem 0; gap: .25rem .75rem;
}
[data-testid="stCaptionContainer"] { opacity: .78; }
[data-testid="stTopNav"] { width: 100%; }
[data-testid="stTopNav"] + div { min-width: 0; }
[data-testid="stTopNav"] > div:has(a[href$="/new"]) { margin-left: auto; order: 9999 !important; }
a[data-testid="stTopNavLink"][href$="/new"] { background: PRIMARY; color: white; }
a[data-testid="stTopNavLink"][href$="/new"] span { color: white; font-weight: 600; }
.st-key-docs-text { max-width: 56rem; }
[data-testid="stToastContainer"] { top: auto; bottom: 1rem; }
.st-key-foot a:not(:hover) { background: transparent; }
.st-key-foot a p { font-weight: inherit; }
@media (max-width: 800px) {
  [data-testid="stLayoutWrapper"]:has(> .st-key-strip) { position: static; }
  .st-key-strip > :first-child { min-width: 100%; }
  .st-key-explore [data-testid="stHorizontalBlock"]:has(> [data-testid="stColumn"]) {
    flex-direction: column-reverse;
  }
  .st-key-explore > * > * > [data-testid="stColumn"] { width: 100%; }
}
@media (max-width: 640px) {
  [data-testid="stToolbar"] div:has(> [data-testid="stMainMenu"]) { min-width: 0; }
  [class*="st-key-line-of-"] [data-testid="stColumn"] { min-width: 0; flex: 0 1 auto; width: auto; }
  [class*="st-key-line-of-"] [data-testid="stColumn"]:nth-child(2) { flex: 1 0 75%; }
}
@media (max-width: 760px) { .st-key-roles-head, .st-key-analyses-head { display: none; } }
a[data-testid="stTopNavLink"]:focus-visible, .st-key-foot a:focus-visible,
[data-testid="stElementToolbar"] button:focus-visible {
  outline: 2px solid #3380b2; outline-offset: -2px;
}
button[data-variant][data-selected="true"], button[data-variant][data-selected="true"] p {
  color: LINK;
}
</style>"""
# Below this many pixels panels beside each other are too small to be read.
_NARROW = 760
# What changes the address without the user having done anything since it last changed is no step of
# theirs. That is set up once in a window, however often the component is made.
_SCRIPT = """
function keepOneEntryEach() {
  if (window.oneEntryEach) return;
  window.oneEntryEach = true;
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let acted = false;
  history.pushState = (...entry) => {
    (acted ? push : replace)(...entry);
    acted = false;
  };
  for (const action of ["pointerdown", "keydown", "click"])
    addEventListener(action, () => { acted = true; }, true);
  addEventListener("popstate", () => { acted = false; }, true);
}

export default function ({ setStateValue }) {
  keepOneEntryEach();
  const narrow = window.matchMedia("(max-width: %dpx)");
  const tell = () => setStateValue("narrow", narrow.matches);
  if (narrow.matches) tell();
  narrow.addEventListener("change", tell);
  return () => narrow.removeEventListener("change", tell);
}
"""
_KEY = "window"


def watch_width() -> None:
    """Keep the history so, and hear whether the window is narrow; a wide one says so later only."""
    hear = st.components.v2.component("window", js=_SCRIPT % _NARROW)

    def remember() -> None:
        st.session_state["narrow window"] = bool(st.session_state[_KEY].narrow)

    hear(key=_KEY, default={"narrow": False}, on_narrow_change=remember, height=1)


def narrow() -> bool:
    """Whether the window is so narrow that panels stand below each other."""
    return bool(st.session_state.get("narrow window", False))


def dress() -> None:
    """Give every page the same look."""
    theme, style = st.context.theme.type or "light", _STYLE
    colors = {"link": "link", "primary": "primary", "ground": "background", "line": "border"}
    for word, name in colors.items():
        style = style.replace(word.upper(), str(st.get_option(f"theme.{theme}.{name}Color")))
    st.html(style)
