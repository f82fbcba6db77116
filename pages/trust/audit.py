"""What an artefact could have made: the audit of every layer."""

from __future__ import annotations

import streamlit as st

from pages.parts import audited, exporting
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain


def show(view: View) -> None:
    """What the audit says of every layer, or the button that makes it."""
    from mlem_core.robustness.flags import summary

    audit = audited.audit(view)
    if audit is None:
        st.markdown(
            "Runs the analysis again without the words at position 0, with cosine distance, with "
            "standardised units, without outlier units and with random weights, and says which "
            "conclusions change."
        )
        audited.offer(view)
        return
    shown, panel = view.shown(), Panel.of(view, "audit")
    if shown is None or shown.flagged is None or panel is None:
        return
    said = shown.once(("audit in words", repr(shown.names)), lambda: summary(audit, shown.names))
    with st.container(border=True):
        st.markdown("\n".join(f"- {plain(one)}" for one in said))
    for notice in audit.notices:
        st.caption(plain(notice))
    panel.show()
    exporting.show_table(
        shown.flagged.sort_values("severity", ascending=False, kind="stable"),
        "audit-marks",
        "What changes, and why it is flagged",
        "A row a layer (or pair of layers) and variant whose result changes by a limit or more; "
        "severity: by how many times the limit, where that changes a conclusion. Figures mark "
        "those from 2 on.",
    )
    exporting.show_table(
        audit.changes,
        "audit-changes",
        "Every layer in every variant",
        "tau: weighted Kendall τ of the layer's profile with that of the variant; rho: held-out "
        "score; rsa_change: the largest change of the layer's RSA with another layer.",
    )
