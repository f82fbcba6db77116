"""What an audit changes of a conclusion, by how much, and what may be said of two layers then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from mlem_core.base.labels import Names
from mlem_core.inference.explained import Explanation
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.finding import Checked, Finding, check
from mlem_core.robustness.flags import (
    ALIKE,
    CLEAR_LEAD,
    CONTROL_SHARE,
    MARKED,
    RSA_CHANGE,
    TAU_CHANGE,
    flags,
    marked,
    reasons,
)
from mlem_core.robustness.variants import CONTROL

A, B = ("m", 1), ("n", 2)
BEFORE = 0.6
LAYER = {
    "model": "a", "layer": 0, "variant": "cosine", "tau": 1.0, "top": "f_1", "top_before": "f_1",
    "less": "", "more": "", "lead": 0.0, "rho": 0.5, "rho_before": 0.5,
}  # fmt: skip
PAIR = {
    "model_a": "a", "layer_a": 0, "model_b": "b", "layer_b": 0, "variant": "cosine",
    "rsa": 0.5, "rsa_before": 0.5, "tau": 0.5, "tau_before": 0.5,
}  # fmt: skip
Rows = Sequence[Mapping[str, Any]]


def audit_of(changes: Rows = (), pairs: Rows = ()) -> Audit:
    """An audit of layers and pairs with what is planted, the rest unchanged."""
    layers = pd.DataFrame([LAYER | one for one in changes], columns=list(LAYER))
    both = pd.DataFrame([PAIR | one for one in pairs], columns=list(PAIR))
    return Audit(pd.DataFrame(), layers, both, ())


def audit_of_two(**rsa: float) -> Audit:
    """Of A and B, whose RSA is 0.6, and of two other layers, in which all is otherwise."""
    ours = dict(zip(("model_a", "layer_a", "model_b", "layer_b"), (*A, *B), strict=True))
    rows = []
    for variant, value in rsa.items():
        own = ours | {"variant": variant.replace("_", "-"), "rsa": value, "rsa_before": BEFORE}
        rows += [own, own | {"layer_a": 2, "rsa": -0.5}]
    return audit_of(pairs=rows)


def finding(checked: Checked) -> Finding:
    terms = pd.DataFrame({"term": ["tense", "unexplained"], "value": [0.4, 0.2]})
    terms = terms.assign(lower=[0.3, 0.1], upper=[0.5, 0.3])
    whole = pd.DataFrame({"quantity": ["rsa"], "value": [BEFORE], "lower": [0.5], "upper": [0.7]})
    return Finding(Explanation((A, B), terms, whole), checked)


OTHER = {"top": "g", "less": "f_1", "more": "g"}
RANDOM = {"variant": "random-weights"}


@pytest.mark.parametrize(
    ("change", "measure", "severity"),
    [
        # Another feature matters most, by so much.
        (OTHER | {"lead": 0.1}, "profiles", 0.1 / CLEAR_LEAD),
        (OTHER | {"lead": 0.021}, "profiles", 0.021 / CLEAR_LEAD),
        # Two others change places.
        ({"less": "h", "more": "g", "lead": 0.3}, "profiles", 0.0),
        # A number changes.
        ({"rho": 0.2}, "scores", 0.0),
        # Random weights reach nearly all, all, and more.
        (RANDOM | {"rho": 0.46}, "scores", 1.2),
        (RANDOM | {"rho": 0.5}, "scores", 2.0),
        (RANDOM | {"rho": 0.6}, "scores", 4.0),
    ],
)
def test_what_changes_a_conclusion_about_a_layer_is_severe(change, measure, severity) -> None:
    table = flags(audit_of([change]))
    assert list(table["measure"]) == [measure]
    assert table["severity"].item() == pytest.approx(severity)
    assert bool(reasons(table, measure)) == (severity >= MARKED - 1e-9)


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"rsa": 0.05}, {"rsa": 0.45 / RSA_CHANGE}),  # alike no more
        ({"rsa_before": 0.0, "rsa": 0.45}, {"rsa": 0.45 / RSA_CHANGE}),  # alike only then
        ({"rsa_before": 0.95, "rsa": ALIKE}, {"rsa": 0.0}),  # alike in both
        ({"rsa_before": 0.2, "rsa": -0.2}, {"rsa": 0.4 / RSA_CHANGE}),  # the other sign
        ({"rsa_before": 0.25, "rsa": -0.05}, {"rsa": 0.0}),  # next to nothing
        ({"tau": -0.4}, {"tau": 0.9 / TAU_CHANGE}),
        ({"tau_before": 1.0, "tau": 0.5}, {"tau": 0.0}),
        (RANDOM | {"rsa": 0.475}, {"rsa": 1.5}),
        (RANDOM | {"rsa": 0.55}, {"rsa": 3.0}),
        (RANDOM | {"model_b": "a", "layer_b": 1}, {"rsa": 0.0}),  # one model
        (RANDOM | {"rsa": 0.2, "rsa_before": 0.2}, {"rsa": 0.0}),
    ],
)
def test_what_changes_a_conclusion_about_two_layers_is_severe(change, severity) -> None:
    table = flags(audit_of(pairs=[change]))
    assert dict(zip(table["measure"], table["severity"], strict=True)) == pytest.approx(severity)
    assert set(marked(table)["measure"]) == {m for m, much in severity.items() if much >= MARKED}


def test_the_most_severe_reason_comes_first_and_the_rest_is_only_in_the_table() -> None:
    leads = {"cosine": 0.05, "standardised": 0.2, "without-first": 0.03}
    found = audit_of([OTHER | {"variant": name, "lead": lead} for name, lead in leads.items()])
    table = flags(found)
    assert len(table) == 3
    (said,) = reasons(table, "profiles").values()
    assert said == (
        "with standardised units g matters most, not f 1; "
        "with cosine distance g matters most, not f 1"
    )
    named = flags(found, Names(features={"f_1": "Fall"}))
    assert named["reason"][0].endswith("g matters most, not Fall")


@pytest.mark.parametrize("sides", [(A, B), (B, A)])
def test_what_no_variant_changes_holds(sides) -> None:
    checked = check(audit_of_two(cosine=0.5, standardised=0.7, random_weights=0.1), *sides)
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
            audit_of_two(cosine=BEFORE - RSA_CHANGE - 0.01, standardised=BEFORE),
            "with cosine distance RSA is 0.39 instead of 0.60",
        ),
        (
            audit_of_two(cosine=BEFORE, random_weights=BEFORE * CONTROL_SHARE + 0.01),
            "with random weights RSA is 0.55 (trained 0.60)",
        ),
    ],
)
def test_what_a_variant_changes_has_no_headline_and_says_why(audit, why) -> None:
    checked = check(audit, A, B)
    assert checked.verdict == "changes" and checked.badge == "changes in 1 of 2 checks"
    said = finding(checked)
    assert said.headline == "" and said.instead == "No finding about m layer 1 and n layer 2."
    assert said.why_not == f"Their RSA of 0.60 does not stand up to the audit: {why}."


@pytest.mark.parametrize(
    ("audit", "badge", "said"),
    [
        (None, "not checked yet", "No audit"),
        # An audit that has nothing about these layers does not vouch for them.
        (audit_of_two(cosine=0.6), "cannot be checked", "no variant"),
    ],
)
def test_without_an_audit_nothing_is_said_of_robustness(audit, badge, said) -> None:
    checked = check(audit, A, ("m", 3))
    assert (checked.verdict, checked.badge) == ("unknown", badge)
    assert finding(checked).headline and said in checked.sentence
