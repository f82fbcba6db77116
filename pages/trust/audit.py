"""What an artefact could have made: the audit of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.report import captions
from pages.parts import audited, exporting, naming, stored
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from mlem_core.base.labels import Names
    from mlem_core.robustness.audit_tables import Audit


# The same for everyone who looks at the analysis, whichever features are kept.
@stored.kept(8)
def _said(
    job_id: str, called: str, _names: Names, _audit: Audit
) -> tuple[pd.DataFrame, list[str], Figure]:
    """The flags of an audit, what they say, and its map; `called` stands for the names."""
    from mlem_core import figures
    from mlem_core.robustness.flags import flags, marked, summary
    from mlem_core.robustness.variants import CONTROL, SAYS

    flagged = flags(_audit, _names)
    drawn = figures.audit_map(_audit.layers, _audit.changes, marked(flagged), SAYS, CONTROL)
    return flagged, summary(_audit, _names), drawn


def show(view: View) -> None:
    """What the audit says of every layer, or the button that makes it."""
    audit = audited.audit(view)
    if audit is None:
        st.markdown(
            "Runs the analysis again without the words at position 0, with cosine distance, with "
            "standardised units, without outlier units and with random weights, and says which "
            "conclusions change."
        )
        audited.offer(view)
        return
    names = naming.now()
    flagged, summary, drawn = _said(view.job_id, repr(names), names, audit)
    with st.container(border=True):
        st.markdown("\n".join(f"- {plain(one)}" for one in summary))
    for notice in audit.notices:
        st.caption(plain(notice))
    Panel(
        drawn,
        audit.layers,
        "audit",
        captions.audit(len(view.analysis.stimuli), view.analysis.tables.n_pairs),
    ).show()
    exporting.show_table(
        flagged.sort_values("severity", ascending=False, kind="stable"),
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
