"""Why two layers of a view are alike, with the best intervals that there are by now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import alike, audited, naming, stored, uncertainty
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.selection import Selection
    from mlem_core.base.typing import Layer
    from mlem_core.inference.explained import Explanation
    from mlem_core.robustness.flags import Checked, Finding
    from mlem_core.robustness.variants import Audit
    from mlem_core.tasks.followups import Followup
    from pages.parts.view import View

COLORS = {"holds": "green", "changes": "orange", "unknown": "gray"}
SYMBOLS = {"holds": "verified", "changes": "warning", "unknown": "help"}


@stored.kept(512, copied=True)
def _explanation(
    job_id: str, a: str, b: str, features: tuple[str, ...], similarity: str
) -> Explanation:
    from mlem_core.analysis.similarities import compared
    from mlem_core.inference.explanation import explain

    sides, analysis = (parse_layer(a), parse_layer(b)), stored.open_analysis(job_id)
    found = compared(analysis, similarity, stored.store())
    return explain(analysis, *sides, features=features, compared=found)


@stored.kept(64, copied=True, show_spinner="Carrying the metrics over …")
def _transferred(job_id: str, a: str, b: str, selection: Selection) -> Explanation:
    from mlem_core.inference.explanation import with_transfer

    why = _explanation(job_id, a, b, selection.features, alike.RSA)
    return with_transfer(why, stored.open_analysis(job_id), selection)


def beside(view: View, a: str, b: str) -> Explanation:
    """The explanation of the two layers with S_feat, S_rest and transfer.

    Without transfer where metrics are slow to fit and the work that makes intervals is not done.
    """
    from mlem_core.estimators.registry import estimator_named
    from mlem_core.inference.partial import PARTS

    found, n = of_pair(view, a, b), len(PARTS)
    if len(found.partial) > n or estimator_named(view.selection.estimator).slow:
        return found
    transfers = _transferred(view.job_id, a, b, view.selection).partial.iloc[n:]
    return replace(found, partial=pd.concat((found.partial, transfers), ignore_index=True))


def of_pair(view: View, a: str, b: str, similarity: str = alike.RSA) -> Explanation:
    """Why the layers "model:layer" a and b are alike, in the names that the user gave.

    A similarity other than RSA has to be in the store.
    """
    from mlem_core.inference.explanation import best_known

    why = _explanation(view.job_id, a, b, view.selection.features, similarity)
    of = view.analysis, view.selection, stored.store()
    found = best_known(why, *of, uncertainty.of(view))
    return replace(found, names=naming.now(), coding=view.coding)


def intervals(view: View, a: str, b: str, similarity: str = alike.RSA) -> Followup:
    """The work that makes the finest intervals of two layers."""
    from mlem_core.inference.explanation import REPLICATES

    options = {
        "a": list(parse_layer(a)),
        "b": list(parse_layer(b)),
        "features": view.features,
        "estimator": view.selection.estimator,
        "interactions": view.selection.interactions,
        "draws": REPLICATES,
        "similarity": similarity,
    }
    return view.work("error-bars", options)


def finding(view: View, a: str, b: str) -> Finding:
    """The same with what the audit says of it."""
    return checked(view, of_pair(view, a, b))


def checked(view: View, why: Explanation) -> Finding:
    """An explanation with what the audit says of it."""
    from mlem_core.robustness.flags import Checked, Finding

    audit = audited.audit(view)
    return Finding(why, Checked() if audit is None else _check(view.job_id, *why.layers, audit))


# The same whichever features are kept.
@stored.kept(256)
def _check(job_id: str, a: Layer, b: Layer, _audit: Audit) -> Checked:
    from mlem_core.robustness.flags import check

    return check(_audit, a, b)


def in_words(view: View, finding: Finding) -> None:
    """A finding with its badge and how sure it is; where none may be said, why not."""
    checked = finding.checked
    said = finding.headline or finding.instead
    # A share stays on one line with its sign.
    st.markdown(f"##### {plain(said)}".replace(" %", "\u00a0%"))
    st.badge(
        checked.badge,
        icon=f":material/{SYMBOLS[checked.verdict]}:",
        color=COLORS[checked.verdict],  # type: ignore[arg-type]
        help=checked.sentence,
    )
    text = finding.why.how_sure if finding.headline else finding.why_not
    if text:
        st.markdown(plain(text))
    for note in finding.why.notes:
        st.caption(plain(note))
    uncertainty.offer(view)
    if not checked.audited:
        audited.offer(view)
