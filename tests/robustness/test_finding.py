"""What may be said of two layers, by the audit that comes with them."""

from __future__ import annotations

import pandas as pd
import pytest

from mlem_core.inference.explained import Explanation
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.comparison import CHANGES, PAIRS
from mlem_core.robustness.finding import Checked, Finding, check
from mlem_core.robustness.flags import CONTROL_SHARE, RSA_CHANGE
from mlem_core.robustness.variants import CONTROL

A, B = ("m", 1), ("n", 2)
BEFORE = 0.6


def audit_of(**rsa: float) -> Audit:
    """Of A and B, whose RSA is 0.6, and of two other layers, in which all is otherwise."""
    rows = []
    for variant, value in rsa.items():
        name = variant.replace("_", "-")
        rows.append((*A, *B, name, value, BEFORE, 0.5, 0.5))
        rows.append(("m", 2, *B, name, -0.5, BEFORE, 0.5, 0.5))
    pairs = pd.DataFrame(rows, columns=["model_a", "layer_a", "model_b", "layer_b", *PAIRS[4:]])
    return Audit(pd.DataFrame(), pd.DataFrame(columns=list(CHANGES)), pairs, ())


def finding(checked: Checked) -> Finding:
    terms = pd.DataFrame({"term": ["tense", "unexplained"], "value": [0.4, 0.2]})
    terms = terms.assign(lower=[0.3, 0.1], upper=[0.5, 0.3])
    whole = pd.DataFrame({"quantity": ["rsa"], "value": [BEFORE], "lower": [0.5], "upper": [0.7]})
    return Finding(Explanation((A, B), terms, whole), checked)


@pytest.mark.parametrize("sides", [(A, B), (B, A)])
def test_what_no_variant_changes_holds(sides: tuple) -> None:
    checked = check(audit_of(cosine=0.5, standardised=0.7, random_weights=0.1), *sides)
    assert checked.verdict == "holds" and checked.badge == "holds in 3 of 3 checks"
    assert checked.variants == (("cosine", 0.5), ("standardised", 0.7), (CONTROL, 0.1))
    assert checked.sentence.startswith(
        "RSA is between 0.50 and 0.70 with cosine distance and with standardised units, and 0.10 "
        "with random weights."
    )
    said = finding(checked)
    assert said.headline.startswith("m layer 1 and n layer 2 are alike (RSA 0.60), most of all in")
    assert said.instead == said.why_not == ""


@pytest.mark.parametrize(
    ("audit", "why"),
    [
        (
            audit_of(cosine=BEFORE - RSA_CHANGE - 0.01, standardised=BEFORE),
            "with cosine distance RSA is 0.39 instead of 0.60",
        ),
        (
            audit_of(cosine=BEFORE, random_weights=BEFORE * CONTROL_SHARE + 0.01),
            "with random weights RSA is 0.55 (trained 0.60)",
        ),
    ],
)
def test_what_a_variant_changes_has_no_headline_and_says_why(audit: Audit, why: str) -> None:
    checked = check(audit, A, B)
    assert checked.verdict == "changes" and checked.badge == "changes in 1 of 2 checks"
    said = finding(checked)
    assert said.headline == "" and said.instead == "No finding about m layer 1 and n layer 2."
    assert said.why_not == f"Their RSA of 0.60 does not stand up to the audit: {why}."


def test_without_an_audit_nothing_is_said_of_robustness() -> None:
    checked = check(None, A, B)
    assert (checked.verdict, checked.badge) == ("unknown", "not checked yet")
    assert finding(checked).headline and "No audit" in checked.sentence
    # An audit that has nothing about these layers does not vouch for them.
    checked = check(audit_of(cosine=0.6), A, ("m", 3))
    assert (checked.verdict, checked.badge) == ("unknown", "cannot be checked")
    assert "no variant" in checked.sentence
