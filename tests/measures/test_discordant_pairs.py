"""Pairs that surprise: planted ones are found, noise is not named."""

import numpy as np
import pandas as pd
import pytest

from mlem_core.measures.decomposition import Decomposition
from mlem_core.measures.discordant_pairs import APART, MOST, NOT_EXPLAINED, PREDICTED
from mlem_core.measures.discordant_pairs import discordant_pairs as of
from mlem_core.measures.similarity import tau_by_chance

LAYERS = [(model, layer) for model in ("a", "b") for layer in range(6)]


def square(rng, low, high):
    """A symmetric matrix of similarities."""
    values = rng.uniform(low, high, (12, 12))
    return np.triu(values, 1) + np.triu(values, 1).T + np.eye(12)


@pytest.fixture
def agreeing():
    """Two similarities in the same order, of well predicted layers, half explained."""
    rsa = square(np.random.default_rng(0), 0.2, 0.8)
    return {
        "rsa": rsa,
        "tau": rsa.copy(),
        "unexplained": rsa / 2,
        "layers": LAYERS,
        "rho": np.full(12, 0.5),
        "n_features": 8,
    }


def surprises(rsa, unexplained, **given):
    decomposition = Decomposition(("all",), (rsa - unexplained)[None], unexplained, rsa)
    return of(decomposition, **given)


def planted(given, name, i, j, value):
    changed = given[name].copy()
    changed[i, j] = changed[j, i] = value
    return {**given, name: changed}


def test_nothing_surprises_where_both_agree_and_features_explain(agreeing):
    assert surprises(**agreeing).empty


def test_a_planted_disagreement_is_found_with_its_ranks(agreeing):
    given = planted(planted(agreeing, "rsa", 1, 8, 0.95), "tau", 1, 8, -0.5)
    (row,) = surprises(**given).to_dict("records")
    assert (row["kind"], row["layer_a"], row["layer_b"]) == ("distances", "a:1", "b:2")
    # By hand: it is the first of the 36 pairs of both models in RSA, and the last in τ.
    assert row["above_rsa"] == pytest.approx(35.5 / 36)
    assert row["above_tau"] == pytest.approx(0.5 / 36)
    given = planted(planted(agreeing, "rsa", 1, 8, 0.0), "tau", 1, 8, 0.95)
    assert set(surprises(**given)["kind"]) == {"features"}


def test_every_row_is_what_the_docstring_says(agreeing):
    rng = np.random.default_rng(2)
    given = {**agreeing, "tau": square(rng, -1.0, 1.0), "unexplained": agreeing["rsa"] * 0.9}
    found = surprises(**given)
    pairs = [(i, j) for i in range(6) for j in range(6, 12)]
    rsa = np.array([given["rsa"][pair] for pair in pairs])
    tau = np.array([given["tau"][pair] for pair in pairs])
    at = {(f"a:{i}", f"b:{j - 6}"): number for number, (i, j) in enumerate(pairs)}
    for row in found.to_dict("records"):
        k = at[row["layer_a"], row["layer_b"]]
        assert row["above_rsa"] == pytest.approx(((rsa < rsa[k]).sum() + 0.5) / 36)
        assert row["above_tau"] == pytest.approx(((tau < tau[k]).sum() + 0.5) / 36)
        apart = row["above_rsa"] - row["above_tau"]
        if row["kind"] == "distances":
            assert apart >= APART and row["tau"] <= tau_by_chance(8)
        elif row["kind"] == "features":
            assert apart <= -APART and row["tau"] > tau_by_chance(8)
        else:
            assert row["unexplained"] >= NOT_EXPLAINED and row["above_rsa"] > 0.5
    for _, rows in found.groupby("kind"):
        named = pd.concat([rows["layer_a"], rows["layer_b"]])
        assert len(rows) <= MOST and named.is_unique


def test_what_the_audit_changes_is_not_named_and_few_pairs_are_too_few(agreeing):
    given = planted(planted(agreeing, "rsa", 1, 8, 0.95), "tau", 1, 8, -0.5)
    assert surprises(**given, left_out={frozenset((("a", 1), ("b", 2)))}).empty
    few = [0, 1, 2, 6, 7, 8]
    cut = {name: given[name][np.ix_(few, few)] for name in ("rsa", "tau", "unexplained")}
    rest = {"layers": [LAYERS[i] for i in few], "rho": given["rho"][few], "n_features": 8}
    assert surprises(**cut, **rest).empty


def test_layers_that_no_feature_predicts_are_in_no_disagreement(agreeing):
    rng = np.random.default_rng(1)
    noise = {**agreeing, "tau": square(rng, -1.0, 1.0)}
    assert not surprises(**noise).empty
    assert surprises(**{**noise, "rho": np.full(12, PREDICTED / 2)}).empty
