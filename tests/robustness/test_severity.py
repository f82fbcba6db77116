"""What an audit finds is marked where it changes a conclusion, and by how much."""

from __future__ import annotations

import pandas as pd
import pytest

from mlem_core.base.labels import Names
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.flags import (
    ALIKE,
    CLEAR_LEAD,
    MARKED,
    RSA_CHANGE,
    TAU_CHANGE,
    flags,
    marked,
    reasons,
)


def audit_of(changes: list[dict], pairs: list[dict]) -> Audit:
    """An audit of two layers with what is planted, the rest unchanged."""
    layer = {
        "model": "a", "layer": 0, "variant": "cosine", "tau": 1.0, "top": "f_1",
        "top_before": "f_1", "less": "", "more": "", "lead": 0.0, "rho": 0.5, "rho_before": 0.5,
    }  # fmt: skip
    pair = {
        "model_a": "a", "layer_a": 0, "model_b": "b", "layer_b": 0, "variant": "cosine",
        "rsa": 0.5, "rsa_before": 0.5, "tau": 0.5, "tau_before": 0.5,
    }  # fmt: skip
    columns = (list(layer), list(pair))
    return Audit(
        pd.DataFrame(),
        pd.DataFrame([layer | one for one in changes], columns=columns[0]),
        pd.DataFrame([pair | one for one in pairs], columns=columns[1]),
        (),
    )


@pytest.mark.parametrize(
    ("change", "measure", "severity"),
    [
        # Another feature matters most, by so much.
        ({"top": "g", "less": "f_1", "more": "g", "lead": 0.1}, "profiles", 0.1 / CLEAR_LEAD),
        ({"top": "g", "less": "f_1", "more": "g", "lead": 0.021}, "profiles", 0.021 / CLEAR_LEAD),
        # Two others change places.
        ({"less": "h", "more": "g", "lead": 0.3}, "profiles", 0.0),
        # A number changes.
        ({"rho": 0.2}, "scores", 0.0),
        # Random weights reach nearly all, all, and more.
        ({"variant": "random-weights", "rho": 0.46}, "scores", 1.2),
        ({"variant": "random-weights", "rho": 0.5}, "scores", 2.0),
        ({"variant": "random-weights", "rho": 0.6}, "scores", 4.0),
    ],
)
def test_what_changes_a_conclusion_about_a_layer_is_severe(
    change: dict, measure: str, severity: float
) -> None:
    table = flags(audit_of([change], []))
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
        ({"variant": "random-weights", "rsa": 0.475}, {"rsa": 1.5}),
        ({"variant": "random-weights", "rsa": 0.55}, {"rsa": 3.0}),
        ({"variant": "random-weights", "model_b": "a", "layer_b": 1}, {"rsa": 0.0}),  # one model
        ({"variant": "random-weights", "rsa": 0.2, "rsa_before": 0.2}, {"rsa": 0.0}),
    ],
)
def test_what_changes_a_conclusion_about_two_layers_is_severe(change: dict, severity: dict) -> None:
    table = flags(audit_of([], [change]))
    assert dict(zip(table["measure"], table["severity"], strict=True)) == pytest.approx(severity)
    assert set(marked(table)["measure"]) == {m for m, much in severity.items() if much >= MARKED}


def test_the_most_severe_reason_comes_first_and_the_rest_is_only_in_the_table() -> None:
    swap = {"top": "g", "less": "f_1", "more": "g"}
    found = audit_of(
        [
            swap | {"variant": "cosine", "lead": 0.05},
            swap | {"variant": "standardised", "lead": 0.2},
            swap | {"variant": "without-first", "lead": 0.03},
        ],
        [],
    )
    table = flags(found)
    assert len(table) == 3
    (said,) = reasons(table, "profiles").values()
    assert said == (
        "with standardised units g matters most, not f 1; "
        "with cosine distance g matters most, not f 1"
    )
    named = flags(found, Names(features={"f_1": "Fall"}))
    assert named["reason"][0].endswith("g matters most, not Fall")
