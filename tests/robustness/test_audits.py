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
from inputs import in_files, words
from scipy.spatial.distance import cosine, pdist
from scipy.stats import rankdata, weightedtau

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Progress
from mlem_core.cli.commands import main
from mlem_core.data.stimulus_csv import from_frame, write_csv
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


def planted() -> np.ndarray:
    """(3, n_stimuli, 12): words far off at position 0, one huge unit, and nothing of the kind."""
    table = words(60)
    rng = np.random.default_rng(1)
    shared = rng.standard_normal((len(table), 12))
    shared[:, :6] += 1.2 * table["noun"].to_numpy()[:, None]
    layers = shared + 0.3 * rng.standard_normal((3, len(table), 12))
    layers[SINK, table["word_index"] == 0, 5] += 40
    layers[OUTLIER, :, 3] *= 60
    return layers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return Store(folder / "store")


@pytest.fixture(scope="module")
def analysis(folder: Path, store: Store) -> Analysis:
    return run(in_files(folder, words(60), {"brain": dict(enumerate(planted()))}), store)


@pytest.fixture(scope="module")
def found(analysis: Analysis, store: Store) -> Audit:
    return audit(analysis, store)


def changed(found: Audit, layer: int, variant: str) -> pd.Series:
    changes = found.changes
    return changes[(changes["layer"] == layer) & (changes["variant"] == variant)].iloc[0]


def test_share_of_position_0_is_that_of_the_explicit_pairs(found: Audit) -> None:
    first = words(60)["word_index"].to_numpy() == 0
    i, j = all_pairs(len(first))
    kinds = first[i].astype(int) + first[j]
    for layer, rows in enumerate(planted()):
        distances = pd.Series(pdist(rows))
        for name, values in (("position0", distances), ("position0_ranks", distances.rank())):
            between = values.groupby(kinds).transform("mean")
            expected = between.var() / values.var()
            assert found.layers.loc[layer, name] == pytest.approx(expected, abs=1e-9)
    shares = found.layers["position0_ranks"]
    assert shares[SINK] > 0.6 > POSITION_SHARE > 0.05 > max(shares[OUTLIER], shares[CLEAN])
    assert found.layers.loc[SINK, "position0"] > 0.9
    assert (stimuli_at_first(first, PairDesign.complete(len(first))) == kinds).all()
    assert np.isnan(position_share(np.ones(3), np.array([0, 1, 2])))
    assert np.isnan(position_share(np.arange(3.0), np.zeros(3, dtype=int)))


def test_planted_outlier_unit_is_found_with_its_share(found: Audit) -> None:
    layer = found.layers.loc[OUTLIER]
    variance = planted()[OUTLIER].var(axis=0)
    assert layer["outliers"] == "3" and layer["n_outliers"] == 1 and layer["n_units"] == 12
    assert layer["outlier_share"] == pytest.approx(variance[3] / variance.sum())
    assert found.layers.loc[CLEAN, "outliers"] == ""


def test_mean_cosine_is_that_of_the_explicit_pairs(found: Audit) -> None:
    rows = planted()[SINK][:40]
    rows[4] = 0.0
    i, j = all_pairs(40)
    cosines = [
        1 - cosine(rows[a], rows[b]) if 4 not in (a, b) else 0.0 for a, b in np.stack((i, j), 1)
    ]
    assert mean_cosine(rows) == pytest.approx(np.mean(cosines))
    whole = 1 - pdist(planted()[CLEAN], "cosine")
    assert found.layers.loc[CLEAN, "mean_cosine"] == pytest.approx(whole.mean())


def test_changes_are_those_of_the_explicit_pairs(found: Audit) -> None:
    """Removing the outlier unit changes RSA, and the layer's own distances, as brute force says."""
    layers = planted()
    without = [layers[SINK], np.delete(layers[OUTLIER], 3, axis=1), layers[CLEAN]]
    scaled = [(rows - rows.mean(axis=0)) / rows.std(axis=0) for rows in layers]
    kept = words(60)["word_index"].to_numpy() > 0
    before = [pdist(rows) for rows in layers]
    # The sink moves unit 5 of its layer alone, which makes it an outlier too.
    without[SINK] = np.delete(layers[SINK], 5, axis=1)
    after = {
        "without-outliers": [pdist(rows) for rows in without],
        "standardised": [pdist(rows) for rows in scaled],
        "cosine": [pdist(rows, "cosine") for rows in layers],
        "without-first": [pdist(rows[kept]) for rows in layers],
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
            others = {other: rsa[layer, other] - rho(before[layer], before[other])
                      for other in range(3) if other != layer}  # fmt: skip
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
def test_profiles_are_those_of_a_run_of_that_spec(
    found: Audit, analysis: Analysis, store: Store, variant: str, change: dict[str, str]
) -> None:
    tables = [each.results() for each in (analysis, run(replace(analysis.spec, **change), store))]
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
    pairs = rsa.groupby("variant")[["layer_a", "layer_b"]].apply(
        lambda own: own.to_numpy().tolist()
    )
    assert pairs["without-first"] == [[SINK, CLEAN]]
    assert pairs["without-outliers"] == [[SINK, OUTLIER], [SINK, CLEAN], [OUTLIER, CLEAN]]
    assert set(alone.loc[alone["layer_a"] == CLEAN, "variant"]) == {"cosine"}
    rsa = rsa[rsa["variant"] == "without-outliers"]
    for row in rsa.itertuples():
        assert "without its outlier units RSA is" in row.reason
    sink, outlier, _ = found.layers["note"]
    assert "is whether a stimulus is at position 0" in sink
    assert "Unit 3 of 12 has 100% of the variance." in outlier
    text = " ".join(summary(found))
    assert "Position 0 makes at least 25% of the variance of the ranks: brain:0." in text
    assert "Without position 0 there is a clear change in the profile of 1 of 3 layers, " in text


def test_a_second_look_computes_nothing(
    found: Audit, analysis: Analysis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "run", None)
    seen = audits.find(analysis, store)
    assert seen is not None and audit(analysis, store).notices == seen.notices == found.notices
    for name in ("layers", "changes", "pairs"):
        pd.testing.assert_frame_equal(getattr(seen, name), getattr(found, name))
    other = replace(analysis, spec=replace(analysis.spec, estimator="spearman"))
    assert audits.find(other, store) is None


def test_it_reports_and_can_be_stopped(analysis: Analysis, tmp_path: Path) -> None:
    store, seen = Store(tmp_path), []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if progress.stage == "audit" and progress.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(analysis, store, stop)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages[0] == "pair tables without position 0" and stages[-1] == "audit"
    assert audits.find(analysis, store) is None and not list((tmp_path / "unfinished").iterdir())


def test_random_weights_are_compared_layer_by_layer(tmp_path: Path) -> None:
    """An untrained model is told to be no better than its control."""
    store = Store(tmp_path / "store")
    model = str(tiny.save("gpt2", tmp_path / "gpt2"))
    table = words(30)
    table.loc[::7, "length"] += 1
    analysis = run(in_files(tmp_path, table, {}, models=(model,), device="cpu"), store)
    found = audit(analysis, store)
    control = found.changes[found.changes["variant"] == "random-weights"]
    # The tiny model was saved as it is initialised with the control's seed.
    np.testing.assert_allclose(control["rho"], control["rho_before"])
    np.testing.assert_allclose(control["same"], 1.0)
    table = flags(found)
    table = table[table["variant"] == "random-weights"]
    worth = control["rho_before"] >= 0.1
    assert worth.any() and list(table.loc[table["measure"] == "scores", "layer_a"]) == list(
        control.loc[worth, "layer"]
    )
    assert set(table["measure"]) == {"scores", "rsa"}


def test_controls_of_one_architecture_are_other_networks(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    models = [str(tiny.save("gpt2", tmp_path / name)) for name in ("one", "two")]
    models.append(str(tiny.save("bert", tmp_path / "bert")))
    spec = in_files(tmp_path, words(30), {}, models=tuple(models), device="cpu")
    analysis = run(spec, store)
    one, two, bert = models
    named = {one: f"{one}@random", two: f"{two}@random1", bert: f"{bert}@random"}
    assert controls(analysis) == named
    pairs = audit(analysis, store).pairs
    pairs = pairs[pairs["variant"] == "random-weights"]
    between = pairs[(pairs["model_a"] == one) & (pairs["model_b"] == two)]
    # As they are saved they are the same network; with random weights each has its own.
    same = between[between["layer_a"] == between["layer_b"]]
    np.testing.assert_allclose(same["rsa_before"], 1.0)
    assert len(same) > 1 and (same["rsa"] < 0.9999).all()


def test_sentences_have_no_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sentence": [f"s {n}" for n in range(40)], "long": rng.random(40) > 0.5})
    write_csv(from_frame(frame, "sentences"), tmp_path / "s.csv")
    np.savez(tmp_path / "m.npz", layer_00=rng.standard_normal((40, 6)))
    spec = AnalysisSpec(
        stimuli=str(tmp_path / "s.csv"), representations=(("m", str(tmp_path / "m.npz")),)
    )
    store = Store(tmp_path / "store")
    found = audit(run(spec, store), store)
    assert found.layers["position0"].isna().all()
    assert set(found.changes["variant"]) == {"without-outliers", "standardised", "cosine"}
    assert "whole sentences" in " ".join(found.notices)
    assert found.pairs.empty and flags(found)["layer_b"].eq(-1).all()
    matrix = np.abs(np.subtract.outer(rankdata(frame["long"]), rng.random(40)))
    np.savez(tmp_path / "d.npz", layer_00=(matrix + matrix.T) * (1 - np.eye(40)))
    spec = replace(spec, representations=(("d", str(tmp_path / "d.npz")),), distance="precomputed")
    found = audit(run(spec, store), store)
    assert found.changes.empty and found.layers["n_outliers"].item() == 0


def test_a_planted_artefact_takes_the_headline_away(analysis: Analysis, found: Audit) -> None:
    def of(a: int, b: int) -> Finding:
        sides = (("brain", a), ("brain", b))
        return Finding(explain(analysis, *sides), check(found, *sides))

    # One huge unit hides what its layer shares with the clean one.
    broken = of(OUTLIER, CLEAN)
    assert broken.checked.verdict == "changes" and broken.headline == ""
    assert broken.instead == "No finding about brain layer 1 and brain layer 2."
    assert "without its outlier units RSA is" in broken.why_not
    changed = found.pairs[(found.pairs["layer_a"] == OUTLIER) & (found.pairs["layer_b"] == CLEAN)]
    assert dict(broken.checked.variants) == dict(
        zip(changed["variant"], changed["rsa"], strict=True)
    )
    assert of(CLEAN, OUTLIER).checked == broken.checked  # in either order


def test_the_command_writes_its_tables_and_a_summary(
    found: Audit,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(folder / "store"))
    asked = ["audit", "--stimuli", str(folder / "words.csv"), "--out", str(tmp_path / "out")]
    assert main([*asked, "--representations", f"brain={folder / 'brain.npz'}"]) == 0
    assert capsys.readouterr().out.splitlines() == summary(found)
    written = pd.read_csv(tmp_path / "out" / "audit.csv")
    assert list(written.columns) == list(found.layers.columns)
    np.testing.assert_allclose(written["position0"], found.layers["position0"])
    assert len(pd.read_csv(tmp_path / "out" / "audit_marks.csv")) == len(flags(found))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "audit.csv",
        "audit_changes.csv",
        "audit_marks.csv",
        "audit_pairs.csv",
        "manifest.json",
    ]
    bad = [*asked, "--representations", f"brain={folder / 'brain.npz'}", "--positions", "first"]
    assert main(bad) == 2
    assert "the choices are all, without-first" in capsys.readouterr().err
