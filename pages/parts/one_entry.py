"""One entry of the browser's history for each thing that the user does.

Streamlit makes one of each change of the address, and one click may change it several times: to
the bare address of a page that is opened, and then to what the page fills it with. Back would lead
from the second to the first, which fills itself again.
"""

from __future__ import annotations

import streamlit as st

# What changes the address without the user having done anything since it last changed is no step of
# theirs. It is run once in a browser, however often it is sent.
_SCRIPT = """<script>
if (!window.oneEntryEach) {
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
</script>"""


def keep() -> None:
    """Make it so in the browser that the page is sent to."""
    st.html(_SCRIPT, unsafe_allow_javascript=True)
