"""What the audit of an analysis flags, for the figures that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import background, choices, naming, stored
from pages.parts.view import HIDDEN, View
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.robustness.variants import Audit

SHOWN = "shown"
MEASURES = ("profiles", "scores", "rsa", "tau")
Reasons = dict[str, dict[Any, str]]


def audit_of(view: View) -> Audit | None:
    """The audit of the analysis; None where there is none yet."""
    from mlem_core.robustness.audit import find_audit

    return view.once("audit", lambda: find_audit(view.analysis, stored.store()))


def flag_reasons(view: View) -> Reasons:
    """Why layers, or pairs of layers, are flagged, by measure; empty where there is no audit."""
    from mlem_core.robustness.flags import flags, reasons

    audit, names = audit_of(view), naming.now()
    if audit is None:
        return {}

    def made() -> Reasons:
        flagged = flags(audit, names)
        return {measure: dict(reasons(flagged, measure)) for measure in MEASURES}

    return view.once(("reasons", repr(names)), made) or {}


def choose_marks() -> None:
    """Let the user hide what the audit marks, in figures and in what is saved of them."""
    choices.choose_one(
        "Marks of the audit",
        [SHOWN, HIDDEN],
        "marks",
        SHOWN,
        help="Dots and triangles where a conclusion of the figure changes in the audit by twice "
        "its limit or more. Trust has all that changes.",
    )


def offer_audit(view: View) -> None:
    """The button that makes the audit, or its progress."""
    background.offer(
        view.work("audit", {}),
        "Audit every layer",
        "Works in the background on stored representations; only the control with random "
        "weights runs the models again. It takes a few minutes.",
    )


def say_of_pair(view: View, a: str, b: str) -> None:
    """What the audit says of two layers "model:layer" that a page compares."""
    from mlem_core.robustness.flags import of_two

    one, other = naming.layer(a), naming.layer(b)
    names = {
        "a": f"The profile of {one}",
        "b": f"The profile of {other}",
        "both": f"The similarity of {one} and {other}",
    }
    flagged = of_two(flag_reasons(view), parse_layer(a), parse_layer(b))
    sentences = [plain(f"{names[side]}: {why}.") for side, why in flagged.items()]
    if sentences:
        with st.expander("The audit flags these layers", icon=":material/warning:"):
            st.markdown("\n".join(f"- {one}" for one in sentences))
