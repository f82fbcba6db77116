"""The audit says of planted artefacts what was planted, and of its numbers what the pairs say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from explicit import pairs as all_pairs
from explicit import rho
from inputs import Finished, arguments_of, finished, in_files, words
from scipy.spatial.distance import cosine, pdist
from scipy.stats import rankdata, weightedtau

from mlem_core.analysis.run import run
from mlem_core.base.typing import Progress
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import explain
from mlem_core.pairs.designs import PairDesign
from mlem_core.robustness import audit as audits
from mlem_core.robustness.audit import audit
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.finding import Finding, check
from mlem_core.robustness.flags import POSITION_SHARE, flags, summary
from mlem_core.robustness.layer_measures import mean_cosine, position_share, stimuli_at_first
from mlem_core.robustness.variants import controls
from mlem_core.storage.store import Store

SINK, OUTLIER, CLEAN = 0, 1, 2
TABLE = words(60)
FIRST = TABLE["word_index"].to_numpy() == 0


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Finished:
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
def found(artefacts: Finished) -> Audit:
    return audit(artefacts.analysis, artefacts.store)


def changed(found: Audit, layer: int, variant: str) -> pd.Series:
    changes = found.changes
    return changes[(changes["layer"] == layer) & (changes["variant"] == variant)].iloc[0]


def test_share_of_position_0_is_that_of_the_explicit_pairs(found, artefacts) -> None:
    i, j = all_pairs(len(FIRST))
    kinds = FIRST[i].astype(int) + FIRST[j]
    for layer, rows in artefacts.layers.items():
        distances = pd.Series(pdist(rows))
        for name, values in (("position0", distances), ("position0_ranks", distances.rank())):
            between = values.groupby(kinds).transform("mean")
            expected = between.var() / values.var()
            assert found.layers.loc[layer, name] == pytest.approx(expected, abs=1e-9)
    shares = found.layers["position0_ranks"]
    assert shares[SINK] > 0.6 > POSITION_SHARE > 0.05 > max(shares[OUTLIER], shares[CLEAN])
    assert found.layers.loc[SINK, "position0"] > 0.9
    assert (stimuli_at_first(FIRST, PairDesign.complete(len(FIRST))) == kinds).all()
    assert np.isnan(position_share(np.ones(3), np.array([0, 1, 2])))
    assert np.isnan(position_share(np.arange(3.0), np.zeros(3, dtype=int)))


def test_outlier_units_and_mean_cosines_are_those_of_the_rows(found, artefacts) -> None:
    layer = found.layers.loc[OUTLIER]
    variance = artefacts.layers[OUTLIER].var(axis=0)
    assert layer["outliers"] == "3" and layer["n_outliers"] == 1 and layer["n_units"] == 12
    assert layer["outlier_share"] == pytest.approx(variance[3] / variance.sum())
    assert found.layers.loc[CLEAN, "outliers"] == ""
    rows = artefacts.layers[SINK][:40].copy()
    rows[4] = 0.0
    cosines = [
        1 - cosine(rows[a], rows[b]) if 4 not in (a, b) else 0.0
        for a, b in zip(*all_pairs(40), strict=True)
    ]
    assert mean_cosine(rows) == pytest.approx(np.mean(cosines))
    whole = 1 - pdist(artefacts.layers[CLEAN], "cosine")
    assert found.layers.loc[CLEAN, "mean_cosine"] == pytest.approx(whole.mean())


def test_changes_are_those_of_the_explicit_pairs(found, artefacts) -> None:
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
            others = {
                other: rsa[layer, other] - rho(before[layer], before[other])
                for other in range(3)
                if other != layer
            }
            most = max(others, key=lambda other: abs(others[other]))
            assert row["rsa_with"] == f"brain:{most}"
            assert row["rsa_change"] == pytest.approx(others[most], abs=1e-9)


@pytest.mark.parametrize(
    "variant, change",
    [
        ("cosine", {"distance": "cosine"}),
        ("standardised", {"units": "standardised"}),
        ("without-first", {"positions": "without-first"}),
    ],
)
def test_profiles_are_those_of_a_run_of_that_spec(found, artefacts, variant, change) -> None:
    other = run(replace(artefacts.spec, **change), artefacts.store, progress=False)
    tables = [each.results() for each in (artefacts.analysis, other)]
    profiles = [
        t.importance.groupby(["layer", "feature"], sort=False)["importance"].mean().unstack()
        for t in tables
    ]
    for layer in range(3):
        row = changed(found, layer, variant)
        both = [profile.loc[layer] for profile in profiles]
        assert row["tau"] == pytest.approx(weightedtau(*both).statistic)
        assert row["top_before"] == both[0].idxmax()
        for name, table in zip(("rho_before", "rho"), tables, strict=True):
            mean = table.scores.groupby("layer")["rho"].mean().loc[layer]
            assert row[name] == pytest.approx(mean)
    tau = found.pairs[found.pairs["variant"] == variant]
    expected = tables[1].similarity_profiles.to_numpy()[np.triu_indices(3, 1)]
    assert list(tau["tau"]) == pytest.approx(list(expected))


def test_what_is_planted_is_flagged_and_said(found: Audit) -> None:
    table = flags(found)
    alone = table[table["layer_b"] == -1]
    profile = alone[(alone["measure"] == "profiles") & (alone["variant"] == "without-first")]
    assert list(profile["layer_a"]) == [SINK]
    assert profile["reason"].item() == "without position 0 noun matters most, not position"
    rsa = table[table["measure"] == "rsa"]
    pairs = {
        variant: own[["layer_a", "layer_b"]].to_numpy().tolist()
        for variant, own in rsa.groupby("variant")
    }
    assert pairs["without-first"] == [[SINK, CLEAN]]
    assert pairs["without-outliers"] == [[SINK, OUTLIER], [SINK, CLEAN], [OUTLIER, CLEAN]]
    assert set(alone.loc[alone["layer_a"] == CLEAN, "variant"]) == {"cosine"}
    sink, outlier, _ = found.layers["note"]
    assert "position 0" in sink and "Unit 3 of 12 has 100%" in outlier
    text = " ".join(summary(found))
    assert "Position 0 makes at least 25% of the variance of the ranks: brain:0." in text
    assert "Without position 0 there is a clear change in the profile of 1 of 3 layers, " in text


def test_a_planted_artefact_takes_the_headline_away(found, artefacts) -> None:
    """One huge unit hides what its layer shares with the clean one."""
    sides = (("brain", OUTLIER), ("brain", CLEAN))
    checked = check(found, *sides)
    broken = Finding(explain(artefacts.analysis, *sides), checked)
    assert checked.verdict == "changes" and broken.headline == ""
    assert "brain layer 1 and brain layer 2" in broken.instead
    assert "without its outlier units RSA is" in broken.why_not
    own = found.pairs[(found.pairs["layer_a"] == OUTLIER) & (found.pairs["layer_b"] == CLEAN)]
    assert dict(checked.variants) == dict(zip(own["variant"], own["rsa"], strict=True))
    assert check(found, *sides[::-1]) == checked  # in either order


def test_a_second_look_computes_nothing(found, artefacts, monkeypatch) -> None:
    analysis, store = artefacts.analysis, artefacts.store
    monkeypatch.setattr(audits, "run", None)
    seen = audits.find(analysis, store)
    assert seen is not None and audit(analysis, store).notices == seen.notices == found.notices
    for name in ("layers", "changes", "pairs"):
        pd.testing.assert_frame_equal(getattr(seen, name), getattr(found, name))
    other = replace(analysis, spec=replace(analysis.spec, estimator="spearman"))
    assert audits.find(other, store) is None


def test_it_reports_and_can_be_stopped(artefacts: Finished, tmp_path: Path) -> None:
    store, seen = Store(tmp_path, overlays=()), []

    def stop(progress: Progress) -> None:
        seen.append(progress.stage)
        if progress.stage == "audit" and progress.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(artefacts.analysis, store, stop)
    assert "position 0" in seen[0] and seen[-1] == "audit"
    assert audits.find(artefacts.analysis, store) is None
    assert not list((tmp_path / "unfinished").iterdir())


@pytest.mark.slow
def test_random_weights_are_other_networks_and_compared_layer_by_layer(tmp_path: Path) -> None:
    models = [str(tiny.save("gpt2", tmp_path / name)) for name in ("one", "two")]
    models.append(str(tiny.save("bert", tmp_path / "bert")))
    table = words(20)
    table.loc[::7, "length"] += 1
    chosen = {"models": tuple(models), "device": "cpu", "folds": 3, "layers": (0, 2)}
    analysis, store = finished(tmp_path, in_files(tmp_path, table, {}, **chosen), {})[1:3]
    one, two, bert = models
    named = {one: f"{one}@random", two: f"{two}@random1", bert: f"{bert}@random"}
    assert controls(analysis) == named
    found = audit(analysis, store)
    pairs = found.pairs[found.pairs["variant"] == "random-weights"]
    between = pairs[(pairs["model_a"] == one) & (pairs["model_b"] == two)]
    # As they are saved they are the same network; with random weights each has its own.
    same = between[between["layer_a"] == between["layer_b"]]
    np.testing.assert_allclose(same["rsa_before"], 1.0)
    assert len(same) > 1 and (same["rsa"] < 0.9999).all()
    # A tiny model was saved as it is initialised with the control's seed: no better than that.
    control = found.changes[found.changes["variant"] == "random-weights"]
    control = control[control["model"] == one]
    np.testing.assert_allclose(control["rho"], control["rho_before"])
    np.testing.assert_allclose(control["same"], 1.0)
    table = flags(found)
    table = table[(table["variant"] == "random-weights") & (table["model_a"] == one)]
    worth = control["rho_before"] >= 0.1
    assert worth.any() and list(table.loc[table["measure"] == "scores", "layer_a"]) == list(
        control.loc[worth, "layer"]
    )


def test_sentences_have_no_position_and_distances_no_variants(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sentence": [f"s {n}" for n in range(40)], "long": rng.random(40) > 0.5})
    spec = in_files(tmp_path, frame, {"m": {0: rng.standard_normal((40, 6))}})
    made = finished(tmp_path, spec, {})
    found = audit(made.analysis, made.store)
    assert found.layers["position0"].isna().all()
    assert set(found.changes["variant"]) == {"without-outliers", "standardised", "cosine"}
    assert "whole sentences" in " ".join(found.notices)
    assert found.pairs.empty and flags(found)["layer_b"].eq(-1).all()
    matrix = np.abs(np.subtract.outer(rankdata(frame["long"]), rng.random(40)))
    np.savez(tmp_path / "m.npz", layer_00=(matrix + matrix.T) * (1 - np.eye(40)))
    given = run(replace(spec, distance="precomputed"), made.store, progress=False)
    found = audit(given, made.store)
    assert found.changes.empty and found.layers["n_outliers"].item() == 0


def test_the_command_writes_its_tables_and_a_summary(
    found, artefacts, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(artefacts.store.root))
    asked = ["audit", *arguments_of(artefacts.spec), "--out", str(tmp_path)]
    assert main(asked) == 0
    assert capsys.readouterr().out.splitlines() == summary(found)
    names = {"audit.csv", "audit_changes.csv", "audit_marks.csv", "audit_pairs.csv"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "manifest.json"}
    written = pd.read_csv(tmp_path / "audit.csv")
    assert list(written.columns) == list(found.layers.columns)
    np.testing.assert_allclose(written["position0"], found.layers["position0"])
    assert len(pd.read_csv(tmp_path / "audit_marks.csv")) == len(flags(found))
    assert main([*asked, "--positions", "first"]) == 2
    assert "all, without-first" in capsys.readouterr().err
