"""What the audit of an analysis flags, for the figures that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import background, choices, naming, stored
from pages.parts.view import HIDDEN, View
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.base.labels import Names
    from mlem_core.robustness.variants import Audit

SHOWN = "shown"
MEASURES = ("profiles", "scores", "rsa", "tau")
Reasons = dict[str, dict[Any, str]]


@stored.kept(8)
def _audit(job_id: str) -> Audit:
    from mlem_core.robustness.audit import find

    audit = find(stored.open_analysis(job_id), stored.store())
    if audit is None:
        raise LookupError("no audit yet")  # what raises is not kept
    return audit


@stored.kept(8)
def _reasons(job_id: str, called: str, _names: Names) -> Reasons:
    """`called` stands for the names where it is looked up."""
    from mlem_core.robustness.flags import flags, reasons

    flagged = flags(_audit(job_id), _names)
    return {measure: dict(reasons(flagged, measure)) for measure in MEASURES}


def audit(view: View) -> Audit | None:
    """The audit of the analysis; None where there is none yet."""
    try:
        return _audit(view.job_id)
    except LookupError:
        return None


def reasons(view: View) -> Reasons:
    """Why layers, or pairs of layers, are flagged, by measure; empty where there is no audit."""
    try:
        names = naming.now()
        return _reasons(view.job_id, repr(names), names)
    except LookupError:
        return {}


def marks(view: View) -> Reasons:
    """The same, for a figure that draws them; empty where the user has hidden them."""
    return {} if choices.get_one("marks") == HIDDEN else reasons(view)


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


def offer(view: View) -> None:
    """The button that makes the audit, or its progress."""
    background.offer(
        view.work("audit", {}),
        "Audit every layer",
        "Works in the background on stored representations; only the control with random "
        "weights runs the models again. It takes a few minutes.",
    )


def of_pair(view: View, a: str, b: str) -> dict[str, str]:
    """Why the profile of "a" or "b", or the similarity of "both", is flagged."""
    from mlem_core.robustness.flags import of_two

    return of_two(reasons(view), parse_layer(a), parse_layer(b))


def say_of_pair(view: View, a: str, b: str) -> None:
    """What the audit says of two layers "model:layer" that a page compares."""
    one, other = naming.layer(a), naming.layer(b)
    names = {
        "a": f"The profile of {one}",
        "b": f"The profile of {other}",
        "both": f"The similarity of {one} and {other}",
    }
    sentences = [plain(f"{names[side]}: {why}.") for side, why in of_pair(view, a, b).items()]
    if sentences:
        with st.expander("The audit flags these layers", icon=":material/warning:"):
            st.markdown("\n".join(f"- {one}" for one in sentences))
