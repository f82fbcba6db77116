"""Every universe is a run of its choices, and a claim holds where its formula says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from explicit import rho
from inputs import in_files, words
from scipy.spatial.distance import pdist

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.typing import Progress
from mlem_core.cli.commands import main
from mlem_core.inference.all_layers import layer_intervals
from mlem_core.inference.jackknife import jackknife_interval, p_value
from mlem_core.inference.tables import importance_differences
from mlem_core.models.extraction import ExtractionOptions
from mlem_core.models.representations import from_model
from mlem_core.robustness import multiverse as multiverses
from mlem_core.robustness.claims import Claim, by_choice, curve, over_stimuli, verdict
from mlem_core.robustness.multiverse import Multiverse, choices_of, multiverse
from mlem_core.storage.store import Store
from mlem_core.tasks import followups

A, B, C = ("brain", 0), ("brain", 2), ("other", 1)
CHOICES = {
    "distance": ("euclidean", "manhattan"),
    "positions": ("without-first",),
    "estimator": ("ridge", "spearman"),
}


def table() -> pd.DataFrame:
    """Words with two features; some lengths are missing."""
    frame = words(40)
    frame["length"] = frame["length"].astype(object)
    frame.loc[::9, "length"] = None
    return frame


def layers() -> dict[tuple[str, int], np.ndarray]:
    """In A and B nouns stand apart; in A words at position 0 are far off besides; C is noise."""
    frame = table()
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((3, len(frame), 10))
    rows[:2, :, :5] += 1.5 * frame["noun"].to_numpy()[:, None]
    rows[0, frame["word_index"] == 0, 7] += 30
    return dict(zip((A, B, C), rows, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claims")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return Store(folder / "store")


@pytest.fixture(scope="module")
def analysis(folder: Path, store: Store) -> Analysis:
    a, b, c = layers().values()
    return run(in_files(folder, table(), {"brain": {0: a, 2: b}, "other": {1: c, 3: c}}), store)


@pytest.fixture(scope="module")
def found(analysis: Analysis, store: Store) -> Multiverse:
    return multiverse(analysis, [A, B, C], store, CHOICES)


def test_every_universe_is_a_run_of_its_choices(
    found: Multiverse, analysis: Analysis, store: Store
) -> None:
    assert found.dimensions == ["distance", "positions", "estimator"]
    assert len(found.universes) == 2 * 2 * 2 and found.universes["own"].sum() == 1
    own = found.universes[found.universes["own"]].iloc[0]
    assert list(own[found.dimensions]) == ["euclidean", "all", "ridge"]
    combinations = found.universes[found.dimensions].drop_duplicates()
    assert len(combinations) == len(found.universes)
    kept = {"all": slice(None), "without-first": table()["word_index"].to_numpy() > 0}
    metric = {"euclidean": "euclidean", "manhattan": "cityblock"}
    made = layers()
    for universe in found.universes.itertuples():
        spec = replace(
            analysis.spec,
            distance=universe.distance,
            positions=universe.positions,
            estimator=universe.estimator,
        )
        expected = run(spec, store).results()
        own = found.importance[found.importance["universe"] == universe.universe]
        means = expected.importance.groupby(["model", "layer", "feature"])["importance"].mean()
        for row in own.itertuples():
            mean = means[(row.model, row.layer, row.feature)]
            assert row.importance == pytest.approx(mean, abs=1e-9)
        similarity = found.similarity[found.similarity["universe"] == universe.universe]
        for row in similarity.itertuples():
            both = [(row.model_a, row.layer_a), (row.model_b, row.layer_b)]
            distances = [
                pdist(made[layer][kept[universe.positions]], metric[universe.distance])
                for layer in both
            ]
            names = [f"{model}:{layer}" for model, layer in both]
            assert row.rsa == pytest.approx(rho(*distances), abs=1e-9)
            assert row.tau == pytest.approx(expected.similarity_profiles.loc[*names], abs=1e-9)
        for row in found.layers[found.layers["universe"] == universe.universe].itertuples():
            profile = means[row.model, row.layer].sort_values(ascending=False)
            assert row.top == profile.index[0] and row.order == " > ".join(profile.index)


def test_a_planted_claim_holds_where_it_was_planted(found: Multiverse) -> None:
    """Position rules layer A only as long as the words at position 0 are in."""
    position = Claim("top", (A,), ("position",))
    table = curve(position, found)
    assert list(table["place"]) == list(range(8)) and table["margin"].is_monotonic_increasing
    assert (table["holds"] == (table["positions"] == "all")).all()
    shares = by_choice(position, found).set_index(["dimension", "choice"])
    assert tuple(shares.loc[("positions", "all"), ["holds", "of"]]) == (4, 4)
    assert tuple(shares.loc[("distance", "manhattan"), ["holds", "of"]]) == (2, 4)
    assert verdict(position, found) == (
        "position matters most in brain:0: holds in 4 of 8; it depends most on positions "
        "(4 of 4 with all, 0 of 4 with without-first)."
    )
    assert verdict(Claim("top", (B,), ("noun",)), found).endswith("holds in 8 of 8.")


def test_margins_are_those_of_the_formulas(found: Multiverse) -> None:
    wide = found.importance.pivot(
        index="universe", columns=["model", "layer", "feature"], values="importance"
    )
    pair = found.similarity.pivot(
        index="universe",
        columns=["model_a", "layer_a", "model_b", "layer_b"],
        values=["rsa", "tau"],
    )
    f, g, h = ((*A, name) for name in ("noun", "length", "position"))
    expected = {
        "top noun brain:0": wide[f] - np.maximum(wide[g], wide[h]),
        "above noun length brain:0": wide[f] - wide[g],
        "more-in noun brain:2 brain:0": wide[(*B, "noun")] - wide[f],
        "closer brain:0 brain:2 other:1": pair[("rsa", *A, *B)] - pair[("rsa", *A, *C)],
        "closer other:1 brain:2 brain:0 tau": pair[("tau", *B, *C)] - pair[("tau", *A, *C)],
        "alike brain:2 brain:0 tau 0.25": pair[("tau", *A, *B)] - 0.25,
        "alike brain:2 brain:0": pair[("rsa", *A, *B)] - 0.5,
    }
    for text, margins in expected.items():
        own = Claim.parse(text).margins(found)
        np.testing.assert_allclose(own, margins, atol=1e-12)


def test_claims_in_words() -> None:
    assert (
        Claim.parse("top 'part of speech' a:b:3").sentence == "part of speech matters most in a:b:3"
    )
    names = Names(features={"f": "F"}, models={"a": "A"})
    assert Claim.parse("top f a:1").named(names) == "F matters most in A layer 1"
    assert (
        Claim.parse("closer a:1 b:2 c:3 rsa").named(names).startswith("A layer 1 is more like b ")
    )
    assert Claim.parse("above f g a:1").sentence == "f matters more than g in a:1"
    assert Claim.parse("more-in f a:1 b:2").sentence == "f matters more in a:1 than in b:2"
    said = Claim.parse("closer a:1 b:2 c:3 tau").sentence
    assert said == "a:1 is more like b:2 than like c:3 by τ"
    assert Claim.parse("alike a:1 b:2 .3").sentence == "RSA of a:1 and b:2 is above 0.3"


@pytest.mark.parametrize(
    "text, says",
    [
        ("tpo noun brain:0", "did you mean top"),
        ("top noun", "names 1 layers .* found 0 and 1"),
        ("top noun brain:0 length", "found 1 and 2"),
        ("above noun noun brain:0", "twice"),
        ("closer brain:0 brain:0 brain:2", "twice"),
        ("", "is no claim"),
        ("top 'noun brain:0", "is no claim"),
        ("top nuon brain:0", "did you mean noun"),
        ("top noun brain:1", "layer of the multiverse 'brain:1'"),
        ("alike brain:0 brain:1", "layer of the multiverse 'brain:1'"),
    ],
)
def test_a_claim_that_is_none_is_one_sentence(found: Multiverse, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Claim.parse(text).margins(found)


def test_what_varies_by_default_is_what_can_matter(analysis: Analysis, folder: Path) -> None:
    found = choices_of(analysis)
    assert set(found) == {"distance", "positions", "missing", "estimator"}
    complete = analysis.whole.select(["noun"])
    assert "missing" not in choices_of(replace(analysis, whole=complete))
    given = replace(analysis, spec=replace(analysis.spec, distance="precomputed"))
    assert "distance" not in choices_of(given)


def test_bad_choices_are_one_sentence(analysis: Analysis, store: Store) -> None:
    for layers, choices, says in (
        ([("brain", 1)], None, "did you mean brain:2"),
        ([], None, "no layer is chosen"),
        ([A], {"distanze": ("cosine",)}, "did you mean distance"),
        ([A], {"distance": ("cosin",)}, "did you mean cosine"),
    ):
        with pytest.raises(InputError, match=says):
            multiverse(analysis, layers, store, choices)


def test_a_universe_that_cannot_be_is_named(tmp_path: Path) -> None:
    store, made = Store(tmp_path / "store"), layers()[A]
    made[4] = 0.0
    spec = in_files(tmp_path, table(), {"brain": {0: made}})
    found = multiverse(run(spec, store), [A], store, {"distance": ("cosine",)})
    assert len(found.universes) == 1 and len(found.notices) == 1
    assert "no universe with distance cosine: " in found.notices[0]
    assert verdict(Claim("top", (A,), ("noun",)), found).endswith("of 1.")


def test_a_second_look_computes_nothing(
    found: Multiverse, analysis: Analysis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiverses, "run", None)
    seen = multiverses.find(analysis, [A, B, C], store, CHOICES)
    assert seen is not None
    for name in ("universes", "layers", "importance", "similarity"):
        pd.testing.assert_frame_equal(getattr(seen, name), getattr(found, name))
    assert multiverses.find(analysis, [A, B], store, CHOICES) is None


def test_it_can_be_stopped(analysis: Analysis, tmp_path: Path) -> None:
    store, seen = Store(tmp_path), []

    def stop(progress: Progress) -> None:
        seen.append((progress.stage, progress.done, progress.total))
        if progress.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        multiverse(analysis, [A], store, CHOICES, stop)
    assert seen == [("multiverse", 0, 4), ("multiverse", 1, 4)]
    assert multiverses.find(analysis, [A], store, CHOICES) is None


def test_the_command_says_in_how_many(
    found: Multiverse,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(folder / "store"))
    asked = ["multiverse", "--stimuli", str(folder / "words.csv")]
    for name in ("brain", "other"):
        asked += ["--representations", f"{name}={folder / f'{name}.npz'}"]
    asked += ["--vary", "distance=euclidean,manhattan", "--vary", "positions=without-first"]
    asked += ["--vary", "estimator=ridge,spearman"]
    claims = ["top position brain:0", "closer brain:0 brain:2 other:1"]
    for claim in claims:
        asked += ["--claim", claim]
    assert main([*asked, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [verdict(Claim.parse(claim), found) for claim in claims]
    written = pd.read_csv(tmp_path / "out" / "universes.csv")
    first = curve(Claim.parse(claims[0]), found)
    np.testing.assert_allclose(
        written["margin_1"], first.sort_values("universe")["margin"], atol=1e-12
    )
    assert main([*asked, "--claim", "tpo noun brain:0", "--out", str(tmp_path / "out")]) == 2
    assert main([*asked, "--claim", "top noun brian:0", "--out", str(tmp_path / "out")]) == 2
    assert "did you mean brain" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(SystemExit):
        main([*asked, "--vary", "distance", "--out", str(tmp_path / "out")])
    assert "is not of the form distance=euclidean,cosine" in capsys.readouterr().err


def test_in_the_background_it_is_kept_where_it_is_looked_for(
    analysis: Analysis, store: Store
) -> None:
    choices = {"estimator": ["ridge", "ridge-rank"]}
    options = {"layers": [list(B)], "choices": choices}
    assert multiverses.find(analysis, [B], store, choices) is None
    assert followups.work("multiverse", analysis, options, store, lambda progress: None) == {}
    seen = multiverses.find(analysis, [B], store, choices)
    assert seen is not None and list(seen.universes["estimator"]) == ["ridge", "ridge-rank"]


def test_pooling_is_a_dimension_of_models(tmp_path: Path) -> None:
    """Each universe is that of the mean, or of the last, of a word's sub-tokens."""
    names = tuple(str(tiny.save(kind, tmp_path / kind)) for kind in ("bert", "gpt2"))
    frame = tiny.word_stimuli(tiny.SENTENCES).table.assign(length=lambda t: t["length"] % 4)
    frame.to_csv(tmp_path / "words.csv", index=False)
    store = Store(tmp_path / "store")
    spec = AnalysisSpec(stimuli=str(tmp_path / "words.csv"), models=names, layers=(3,), folds=3)
    analysis = run(spec, store)
    layers = [(name, 3) for name in names]
    assert multiverses.poolings_of(analysis) == ("standard", "mean")
    assert "pooling" not in choices_of(analysis)
    found = multiverse(analysis, layers, store, {"pooling": multiverses.poolings_of(analysis)})
    assert found.universes["pooling"].tolist() == ["standard", "mean"]
    assert found.universes["own"].tolist() == [True, False]
    values = []
    for pooling, row in zip(("standard", "mean"), found.similarity.itertuples(), strict=True):
        options = ExtractionOptions(pooling=pooling)
        states = [from_model(analysis.whole, name, store, options) for name in names]
        values.append(rho(*(pdist(np.asarray(own[3], dtype=float)) for own in states)))
        assert row.rsa == pytest.approx(values[-1], abs=1e-4)
    assert abs(values[0] - values[1]) > 1e-3
    no_such = multiverse(analysis, layers, store, {"pooling": ("last",)})
    assert len(no_such.universes) == 1 and "pooling last" in no_such.notices[0]


def test_files_have_one_pooling(analysis: Analysis) -> None:
    assert multiverses.poolings_of(analysis) == ("standard",)


def test_a_claim_over_other_sentences(analysis: Analysis, store: Store) -> None:
    intervals = layer_intervals(analysis, store)
    closer = over_stimuli(Claim("closer", (A, B, C)), intervals)
    assert closer is not None
    rsa = analysis.rsa
    at = [analysis.layers.index(layer) for layer in (A, B, C)]
    assert closer.value == pytest.approx(rsa[at[0], at[1]] - rsa[at[0], at[2]], abs=1e-6)
    a, b, c = intervals.places((A, B, C))
    value = intervals.rsa[a, b] - intervals.rsa[a, c]
    without = intervals.rsa_without[:, a, b] - intervals.rsa_without[:, a, c]
    assert len(intervals.sizes) == 3 and intervals.units.two_way
    bounds = jackknife_interval(value, without, sizes=intervals.sizes)
    expected = (value, *bounds, float(p_value(value, without, sizes=intervals.sizes)))
    assert closer[:4] == pytest.approx(expected)
    assert closer.others == "other sentences and other words"
    alike = over_stimuli(Claim("alike", (A, B), threshold=0.9), intervals)
    assert alike is not None and alike.upper < 0 and alike.p < 0.001
    assert "p < 0.001" in alike.sentence and "−" in alike.sentence
    top = over_stimuli(Claim("top", (B,), ("noun",)), intervals)
    others = [name for name in intervals.columns if name != "noun"]
    above = [over_stimuli(Claim("above", (B,), ("noun", name)), intervals) for name in others]
    assert top is not None and top.value == min(own.value for own in above if own is not None)
    assert top.lower > 0
    more = over_stimuli(Claim("more-in", (B, C), ("noun",)), intervals)
    own = importance_differences(intervals, B, C).table.set_index("feature").loc["noun"]
    assert more is not None and more[:4] == pytest.approx(
        tuple(own[["value", "lower", "upper", "p"]])
    )
    assert over_stimuli(Claim("closer", (A, B, C), measure="tau"), intervals) is None
    with pytest.raises(InputError, match="noun"):
        over_stimuli(Claim("top", (B,), ("nuon",)), intervals)
