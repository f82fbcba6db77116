"""Audits: planted artefacts, numbers of explicit pairs, and what may be said of two layers then."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import tiny
from helpers.explicit import pairs as all_pairs
from helpers.explicit import rho
from helpers.inputs import arguments_of, finished, for_each, in_files, words
from scipy.spatial.distance import pdist
from scipy.stats import weightedtau

from mlem_core import run
from mlem_core.analysis import flags as marks
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.files import load_analysis, save_analysis
from mlem_core.analysis.similarities import compared
from mlem_core.cli.commands import main
from mlem_core.extensions.audit import flags
from mlem_core.extensions.audit.figures import audit_map
from mlem_core.extensions.audit.flags import Audit, check, controls
from mlem_core.extensions.audit.stage import AUDIT, mean_cosine, position_share, stimuli_at_first
from mlem_core.figures.canvas import chips
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.figures.profiles import draw_profiles
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.variance_shares import variance_shares

SINK, OUTLIER, CLEAN = 0, 1, 2
TABLE = words(60)
FIRST = TABLE["word_index"].to_numpy() == 0


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Words far off at position 0, one huge unit, and nothing of the kind."""
    folder, rng = tmp_path_factory.mktemp("artefacts"), np.random.default_rng(1)
    shared = rng.standard_normal((len(TABLE), 12))
    shared[:, :6] += 1.2 * TABLE["noun"].to_numpy()[:, None]
    layers = shared + 0.3 * rng.standard_normal((3, len(TABLE), 12))
    layers[SINK, FIRST, 5] += 40
    layers[OUTLIER, :, 3] *= 60
    made = dict(enumerate(layers))
    return finished(folder, in_files(folder, TABLE, {"brain": made}), made)


@pytest.fixture(scope="module")
def found(artefacts):
    return AUDIT.get(SelectionContext.from_analysis(artefacts.analysis, artefacts.store))


def changed(found, layer, variant):
    changes = found.changes
    return changes[(changes["layer"] == layer) & (changes["variant"] == variant)].iloc[0]


def test_share_of_position_0_is_that_of_the_explicit_pairs(found, artefacts):
    i, j = all_pairs(len(FIRST))
    kinds = FIRST[i].astype(int) + FIRST[j]
    for layer, rows in artefacts.layers.items():
        distances = pd.Series(pdist(rows))
        for name, values in (("position0", distances), ("position0_ranks", distances.rank())):
            expected = values.groupby(kinds).transform("mean").var() / values.var()
            assert found.layers.loc[layer, name] == pytest.approx(expected, abs=1e-9)
    shares = found.layers["position0_ranks"]
    assert shares[SINK] > 0.6 > marks.POSITION_SHARE > 0.05 > max(shares[OUTLIER], shares[CLEAN])
    assert (stimuli_at_first(FIRST, PairDesign.complete(len(FIRST))) == kinds).all()
    assert np.isnan(position_share(np.ones(3), np.array([0, 1, 2])))


def test_outlier_units_and_mean_cosines_are_those_of_the_rows(found, artefacts):
    layer = found.layers.loc[OUTLIER]
    variance = artefacts.layers[OUTLIER].var(axis=0)
    assert layer["outliers"] == "3" and layer["n_outliers"] == 1 and layer["n_units"] == 12
    assert layer["outlier_share"] == pytest.approx(variance[3] / variance.sum())
    assert found.layers.loc[CLEAN, "outliers"] == ""
    rows = artefacts.layers[SINK][:40].copy()
    rows[4] = 0.0
    cosines = np.nan_to_num(1 - pdist(rows, "cosine"))  # a row of zeros has none
    assert mean_cosine(rows) == pytest.approx(cosines.mean())
    whole = 1 - pdist(artefacts.layers[CLEAN], "cosine")
    assert found.layers.loc[CLEAN, "mean_cosine"] == pytest.approx(whole.mean())


def test_changes_are_those_of_the_explicit_pairs(found, artefacts):
    """Removing the outlier unit changes RSA, and the layer's own distances, as brute force says."""
    layers = list(artefacts.layers.values())
    # The sink moves unit 5 of its layer alone, which makes it an outlier too.
    without = [np.delete(layers[SINK], 5, 1), np.delete(layers[OUTLIER], 3, 1), layers[CLEAN]]
    scaled = [(rows - rows.mean(axis=0)) / rows.std(axis=0) for rows in layers]
    before = [pdist(rows) for rows in layers]
    after = {
        "without-outliers": [pdist(rows) for rows in without],
        "standardised": [pdist(rows) for rows in scaled],
        "cosine": [pdist(rows, "cosine") for rows in layers],
        "without-first": [pdist(rows[~FIRST]) for rows in layers],
    }
    assert set(found.changes["variant"]) == set(after)
    for variant, distances in after.items():
        table = found.pairs[found.pairs["variant"] == variant].set_index(["layer_a", "layer_b"])
        rsa = np.eye(3)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            rsa[a, b] = rsa[b, a] = rho(distances[a], distances[b])
            assert table.loc[(a, b), "rsa"] == pytest.approx(rsa[a, b], abs=1e-9)
            expected = rho(before[a], before[b])
            assert table.loc[(a, b), "rsa_before"] == pytest.approx(expected, abs=1e-9)
        for layer in range(3):
            row = changed(found, layer, variant)
            if variant == "without-first":
                assert np.isnan(row["same"])
            else:
                assert row["same"] == pytest.approx(rho(before[layer], distances[layer]), abs=1e-9)


def test_profiles_are_those_of_a_run_of_that_spec(found, artefacts):
    other = run(replace(artefacts.spec, distance="cosine"), artefacts.store, progress=False)
    before, after = (
        each.results().importance.groupby(["layer", "feature"], sort=False)["importance"].mean()
        for each in (artefacts.analysis, other)
    )
    rho = other.results().scores.groupby("layer")["rho"].mean()
    for layer in range(3):
        row = changed(found, layer, "cosine")
        assert row["tau"] == pytest.approx(weightedtau(before[layer], after[layer]).statistic)
        assert (row["top_before"], row["top"]) == (before[layer].idxmax(), after[layer].idxmax())
        assert row["rho"] == pytest.approx(rho[layer])
    tau = found.pairs[found.pairs["variant"] == "cosine"]["tau"]
    expected = other.results().similarity_profiles.to_numpy()[np.triu_indices(3, 1)]
    assert list(tau) == pytest.approx(list(expected))


def test_what_is_planted_is_flagged_and_said(found):
    table = flags.flags(found)
    alone = table[table["layer_b"] == -1]
    profile = alone[(alone["measure"] == "profiles") & (alone["variant"] == "without-first")]
    assert list(profile["layer_a"]) == [SINK]
    assert profile["reason"].item() == "without position 0 noun matters most, not position"
    pairs = {
        variant: own[["layer_a", "layer_b"]].to_numpy().tolist()
        for variant, own in table[table["measure"] == "rsa"].groupby("variant")
    }
    assert pairs["without-first"] == [[SINK, CLEAN]]
    assert pairs["without-outliers"] == [[SINK, OUTLIER], [SINK, CLEAN], [OUTLIER, CLEAN]]


@pytest.mark.slow
def test_random_weights_are_other_networks_and_compared_layer_by_layer(tmp_path):
    models = [str(tiny.save("gpt2", tmp_path / name)) for name in ("one", "two")]
    models.append(str(tiny.save("bert", tmp_path / "bert")))
    table = words(20)
    table.loc[::7, "length"] += 1
    chosen = {"models": tuple(models), "device": "cpu", "folds": 3, "layers": (0, 2)}
    analysis, store = finished(tmp_path, in_files(tmp_path, table, {}, **chosen), {})[1:3]
    one, two, bert = models
    named = {one: f"{one}@random", two: f"{two}@random1", bert: f"{bert}@random"}
    assert controls(analysis) == named
    found = AUDIT.get(SelectionContext.from_analysis(analysis, store))
    pairs = found.pairs[found.pairs["variant"] == "random-weights"]
    between = pairs[(pairs["model_a"] == one) & (pairs["model_b"] == two)]
    # As they are saved they are the same network; with random weights each has its own.
    same = between[between["layer_a"] == between["layer_b"]]
    np.testing.assert_allclose(same["rsa_before"], 1.0)
    assert len(same) > 1 and (same["rsa"] < 0.9999).all()


def test_sentences_have_no_position(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sentence": [f"s {n}" for n in range(40)], "long": rng.random(40) > 0.5})
    spec = in_files(tmp_path, frame, {"m": {0: rng.standard_normal((40, 6))}})
    made = finished(tmp_path, spec, {})
    found = AUDIT.get(SelectionContext.from_analysis(made.analysis, made.store))
    assert found.layers["position0"].isna().all()
    assert set(found.changes["variant"]) == {"without-outliers", "standardised", "cosine"}
    assert "whole sentences" in " ".join(found.notices)
    # One layer has no other that it could change with.
    audit_map(found.layers, found.changes, flags.flags(found))


def test_the_command_writes_tables_and_a_summary(found, artefacts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(artefacts.store.root))
    assert main(["audit", *arguments_of(artefacts.spec), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == flags.summary(found)
    names = {"audit.csv", "audit_changes.csv", "audit_marks.csv", "audit_pairs.csv"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "manifest.json"}
    assert len(pd.read_csv(tmp_path / "audit_marks.csv")) == len(flags.flags(found))


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


def audit_of(changes=(), pairs=()):
    """An audit of layers and pairs with what is planted, the rest unchanged."""
    layers = pd.DataFrame([LAYER | one for one in changes], columns=list(LAYER))
    both = pd.DataFrame([PAIR | one for one in pairs], columns=list(PAIR))
    return Audit(pd.DataFrame(), layers, both, ())


def audit_of_two(**rsa):
    """Of A and B, whose RSA is 0.6, and of two other layers, in which all is otherwise."""
    ours = dict(zip(("model_a", "layer_a", "model_b", "layer_b"), (*A, *B), strict=True))
    rows = []
    for variant, value in rsa.items():
        own = ours | {"variant": variant.replace("_", "-"), "rsa": value, "rsa_before": BEFORE}
        rows += [own, own | {"layer_a": 2, "rsa": -0.5}]
    return audit_of(pairs=rows)


OTHER = {"top": "g", "less": "f_1", "more": "g"}
RANDOM = {"variant": "random-weights"}


@for_each(
    "change, measure, severity",
    # Another feature matters most, by so much.
    (OTHER | {"lead": 0.1}, "profiles", 0.1 / flags.CLEAR_LEAD),
    # Two others change places.
    ({"less": "h", "more": "g", "lead": 0.3}, "profiles", 0.0),
    # A number changes.
    ({"rho": 0.2}, "scores", 0.0),
    # Random weights reach nearly all, all, and more.
    (RANDOM | {"rho": 0.46}, "scores", 1.2),
)
def test_what_changes_a_conclusion_about_a_layer_is_severe(change, measure, severity):
    table = flags.flags(audit_of([change]))
    assert list(table["measure"]) == [measure]
    assert table["severity"].item() == pytest.approx(severity)
    assert bool(marks.reasons(table, measure)) == (severity >= marks.MARKED - 1e-9)


@for_each(
    "change, severity",
    ({"rsa": 0.05}, {"rsa": 0.45 / flags.RSA_CHANGE}),  # alike no more
    ({"rsa_before": 0.0, "rsa": 0.45}, {"rsa": 0.45 / flags.RSA_CHANGE}),  # alike only then
    ({"rsa_before": 0.2, "rsa": -0.2}, {"rsa": 0.4 / flags.RSA_CHANGE}),  # the other sign
    ({"rsa_before": 0.25, "rsa": -0.05}, {"rsa": 0.0}),  # next to nothing
    ({"tau": -0.4}, {"tau": 0.9 / flags.TAU_CHANGE}),
    (RANDOM | {"model_b": "a", "layer_b": 1}, {"rsa": 0.0}),  # one model
    (RANDOM | {"rsa": 0.2, "rsa_before": 0.2}, {"rsa": 0.0}),
)
def test_what_changes_a_conclusion_about_two_layers_is_severe(change, severity):
    table = flags.flags(audit_of(pairs=[change]))
    assert dict(zip(table["measure"], table["severity"], strict=True)) == pytest.approx(severity)
    severe = {measure for measure, much in severity.items() if much >= marks.MARKED}
    assert set(marks.marked(table)["measure"]) == severe


HELD = audit_of_two(cosine=0.5, standardised=0.7, random_weights=0.1)
CHANGED = audit_of_two(cosine=BEFORE - flags.RSA_CHANGE - 0.01, standardised=BEFORE)
REACHED = audit_of_two(cosine=BEFORE, random_weights=BEFORE * flags.CONTROL_SHARE + 0.01)


@for_each(
    "audit, sides, verdict, badge, reasons",
    (HELD, (A, B), "holds", "holds in 3 of 3 checks", []),
    (HELD, (B, A), "holds", "holds in 3 of 3 checks", []),
    (CHANGED, (A, B), "fails", "fails 1 of 2 checks",
     ["with cosine distance RSA is .39 instead of .60"]),
    (REACHED, (A, B), "fails", "fails 1 of 2 checks",
     ["with random weights RSA is .55 (trained .60)"]),
    (None, (A, ("m", 3)), "not tested", "artefacts: not checked yet", []),
    # An audit that has nothing about these layers does not vouch for them.
    (HELD, (A, ("m", 3)), "not tested", "artefacts: cannot be checked", []),
)  # fmt: skip
def test_two_layers_fail_a_check_where_a_variant_changes_them(
    audit, sides, verdict, badge, reasons
):
    checked = check(audit, *sides)
    assert (checked.verdict, checked.badge, [*checked.reasons]) == (verdict, badge, reasons)


def test_a_layer_of_one_position_or_one_unit_is_marked_in_every_figure_of_it(tmp_path):
    # Unit 7 of the second layer is far out at position 0, the third varies in one unit.
    layers = np.random.default_rng(0).standard_normal((3, len(TABLE), 120))
    layers[1, FIRST, 7] += 300
    layers[2, :, 5] *= 40
    made = dict(enumerate(layers))
    analysis = finished(tmp_path, in_files(tmp_path, TABLE, {"m": made}), made).analysis
    for layer, rows in enumerate(layers):
        # The share of position 0 is η² of a one-way analysis of variance, summed over the units.
        groups, mean = [rows[FIRST], rows[~FIRST]], rows.mean(axis=0)
        total = rows.var(axis=0).sum() * len(rows)
        between = sum(len(of) * ((of.mean(axis=0) - mean) ** 2).sum() for of in groups)
        row = analysis.variance.iloc[layer]
        assert row["first"] == pytest.approx(between / total)
        assert row["unit"] == pytest.approx(rows.var(axis=0).max() * len(rows) / total)
    folder = tmp_path / "kept"
    folder.mkdir()
    save_analysis(analysis, folder)
    kept = load_analysis(folder)
    pd.testing.assert_frame_equal(kept.variance, analysis.variance)
    drawing = FigureOptions((("m", 1), ("m", 2)))
    context = FigureContext(kept, kept.select(), drawing=drawing)
    marks = context.reasons("profiles")
    assert [*marks] == [("m", 1), ("m", 2)] and "position 0 has 9" in marks["m", 1]
    assert marks["m", 2] == "one unit has 94 % of its variance"
    assert [*context.reasons("rsa")] == [(layer, layer) for layer in marks]
    shown = chips(context, context.why)[-1]
    assert shown["state"] == "fails" and "In m layer 2 one unit has 94 %" in shown["more"]
    (trace,) = [one for one in draw_profiles(context).figure.data if one.name == "flagged"]
    assert list(trace.x) == [1, 2]
    # An older analysis has no shares, and no mark.
    older = replace(context, analysis=replace(kept, variance=None))
    assert older.reasons("profiles") == {}
    assert np.isnan(variance_shares(np.ones((4, 3)))).all()
    # A number of the row among a few units has nearly all of the variance.
    few = np.random.default_rng(0).standard_normal((84, 30))
    assert np.isnan(variance_shares(few).unit)
    assert variance_shares(np.column_stack((range(101, 185), few))).unit > 0.9


@for_each("name", "cka", "procrustes")
def test_layers_are_compared_by_another_similarity(planted, name):
    analysis, store = planted.analysis, planted.store
    context = SelectionContext(analysis, analysis.select(similarity=name), store)
    audited = AUDIT.get(context)
    values = compared(analysis, name, store).values
    assert audited.pairs[f"{name}_before"][0] == pytest.approx(values[0, 1])
    # What depends on no distance stays as it is with another one.
    assert set(audited.pairs["variant"]) == {"without-outliers", "standardised"}
    assert AUDIT.find(context).similarity.name == name
