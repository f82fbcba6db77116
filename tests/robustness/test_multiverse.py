"""Every universe is a run of its choices, and a claim holds where its formula says so."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
from explicit import rho
from inputs import arguments_of, finished, for_each, in_files, refused, words
from scipy.spatial.distance import pdist

from mlem_core.analysis.run import run
from mlem_core.cli.commands import main
from mlem_core.inference.importance_chance import above_chance
from mlem_core.inference.intervals import importance_difference_table
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.inference.resample import jackknife
from mlem_core.models.extraction import ExtractionOptions
from mlem_core.models.representations import from_model
from mlem_core.robustness import multiverse as multiverses
from mlem_core.robustness.claims import Claim, by_choice, curve, of_chance, over_stimuli, verdict
from mlem_core.robustness.multiverse import choices_of, multiverse

A, B, C = ("brain", 0), ("brain", 2), ("other", 1)
CHOICES = {
    "distance": ("euclidean", "manhattan"),
    "positions": ("without-first",),
    "estimator": ("ridge", "spearman"),
}
TABLE = words(40)
TABLE["length"] = TABLE["length"].astype(object)
TABLE.loc[::9, "length"] = None
AFTER_FIRST = TABLE["word_index"].to_numpy() > 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """In A and B nouns stand apart; in A words at position 0 are far off besides; C is noise."""
    folder = tmp_path_factory.mktemp("claims")
    rows = np.random.default_rng(2).standard_normal((3, len(TABLE), 10))
    rows[:2, :, :5] += 1.5 * TABLE["noun"].to_numpy()[:, None]
    rows[0, ~AFTER_FIRST, 7] += 30
    a, b, c = rows
    spec = in_files(folder, TABLE, {"brain": {0: a, 2: b}, "other": {1: c, 3: c}})
    return finished(folder, spec, {A: a, B: b, C: c})


@pytest.fixture(scope="module")
def found(made):
    return multiverse(made.analysis, [A, B, C], made.store, CHOICES)


def test_every_universe_is_a_run_of_its_choices(found, made):
    assert found.dimensions == ["distance", "positions", "estimator"]
    assert len(found.universes) == 2 * 2 * 2 and found.universes["own"].sum() == 1
    own = found.universes[found.universes["own"]].iloc[0]
    assert list(own[found.dimensions]) == ["euclidean", "all", "ridge"]
    assert len(found.universes[found.dimensions].drop_duplicates()) == len(found.universes)
    kept = {"all": slice(None), "without-first": AFTER_FIRST}
    metric = {"euclidean": "euclidean", "manhattan": "cityblock"}
    for universe in found.universes.itertuples():
        choices = {name: getattr(universe, name) for name in found.dimensions}
        expected = run(replace(made.spec, **choices), made.store, progress=False).results()
        means = expected.importance.groupby(["model", "layer", "feature"])["importance"].mean()
        importance, similarity, layers = (
            table[table["universe"] == universe.universe]
            for table in (found.importance, found.similarity, found.layers)
        )
        for row in importance.itertuples():
            mean = means[(row.model, row.layer, row.feature)]
            assert row.importance == pytest.approx(mean, abs=1e-9)
        for row in similarity.itertuples():
            both = [(row.model_a, row.layer_a), (row.model_b, row.layer_b)]
            distances = [
                pdist(made.layers[layer][kept[universe.positions]], metric[universe.distance])
                for layer in both
            ]
            names = [f"{model}:{layer}" for model, layer in both]
            assert row.rsa == pytest.approx(rho(*distances), abs=1e-9)
            assert row.tau == pytest.approx(expected.similarity_profiles.loc[*names], abs=1e-9)
        for row in layers.itertuples():
            profile = means[row.model, row.layer].sort_values(ascending=False)
            assert row.top == profile.index[0] and row.order == " > ".join(profile.index)


def test_a_planted_claim_holds_where_it_was_planted(found):
    """Position rules layer A only as long as the words at position 0 are in."""
    position = Claim("top", (A,), ("position",))
    table = curve(position, found)
    assert (table["holds"] == (table["positions"] == "all")).all()
    shares = by_choice(position, found).set_index(["dimension", "choice"])
    assert tuple(shares.loc[("positions", "all"), ["holds", "of"]]) == (4, 4)
    assert tuple(shares.loc[("distance", "manhattan"), ["holds", "of"]]) == (2, 4)
    assert verdict(position, found) == (
        "position matters most in brain layer 0: holds in 4 of 8; it depends most on positions "
        "(4 of 4 with all, 0 of 4 with without-first)."
    )
    assert verdict(Claim("top", (B,), ("noun",)), found).endswith("holds in 8 of 8.")


@pytest.mark.parametrize(("p", "above"), [(0.025, True), (0.3, False), (np.nan, None)])
def test_a_claim_holds_nowhere_where_permuted_labels_matter_as_much(found, p, above):
    claim = Claim("top", (B,), ("noun",))
    chance = pd.DataFrame([(*B, "noun", p)], columns=["model", "layer", "feature", "p"])
    assert above_chance(chance, B, "noun") is above and above_chance(None, B, "noun") is None
    assert curve(claim, found, chance)["holds"].sum() == (0 if above is False else 8)
    said = verdict(claim, found, chance=chance)
    assert ("does not hold" in said) == (above is False) and ("8 of 8" in said) == (
        above is not False
    )
    assert ("not corrected for chance" in of_chance(claim, chance)) == (above is None)


def test_margins_are_those_of_the_formulas(found):
    layer, pair = ["model", "layer", "feature"], ["model_a", "layer_a", "model_b", "layer_b"]
    wide = found.importance.pivot(index="universe", columns=layer, values="importance")
    both = found.similarity.pivot(index="universe", columns=pair, values=["rsa", "tau"])
    f, g, h = ((*A, name) for name in ("noun", "length", "position"))
    expected = {
        "top noun brain:0": wide[f] - np.maximum(wide[g], wide[h]),
        "above noun length brain:0": wide[f] - wide[g],
        "more-in noun brain:2 brain:0": wide[(*B, "noun")] - wide[f],
        "closer brain:0 brain:2 other:1": both[("rsa", *A, *B)] - both[("rsa", *A, *C)],
        "closer other:1 brain:2 brain:0 tau": both[("tau", *B, *C)] - both[("tau", *A, *C)],
        "alike brain:2 brain:0 tau 0.25": both[("tau", *A, *B)] - 0.25,
        "alike brain:2 brain:0": both[("rsa", *A, *B)] - 0.5,
    }
    for text, margins in expected.items():
        np.testing.assert_allclose(Claim.parse(text).margins(found), margins, atol=1e-12)


@for_each(
    "text, sentence",
    ("top 'part of speech' a:b:3", "part of speech matters most in a:b layer 3"),
    ("above f g a:1", "f matters more than g in a layer 1"),
    ("more-in f a:1 b:2", "f matters more in a layer 1 than in b layer 2"),
    ("closer a:1 b:2 c:3 tau", "a layer 1 is more like b layer 2 than like c layer 3 by τ"),
    ("alike a:1 b:2 .3", "RSA of a layer 1 and b layer 2 is above 0.3"),
)
def test_claims_in_words(text, sentence):
    assert Claim.parse(text).sentence == sentence


def test_a_universe_that_cannot_be_is_named(made, tmp_path):
    rows = made.layers[A].copy()
    rows[4] = 0.0
    one = finished(tmp_path, in_files(tmp_path, TABLE, {"brain": {0: rows}}), {})
    found = multiverse(one.analysis, [A], one.store, {"distance": ("cosine",)})
    assert len(found.universes) == 1
    (notice,) = found.notices
    assert "no universe with distance cosine: " in notice
    assert verdict(Claim("top", (A,), ("noun",)), found).endswith("of 1.")


def test_the_command_says_in_how_many(found, made, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(made.store.root))
    asked = ["multiverse", *arguments_of(made.spec), "--out", str(tmp_path)]
    varied = ("distance=euclidean,manhattan", "positions=without-first", "estimator=ridge,spearman")
    asked += [f"--vary={each}" for each in varied]
    claims = ["top position brain:0", "closer brain:0 brain:2 other:1"]
    asked += [f"--claim={claim}" for claim in claims]
    assert main(asked) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [verdict(Claim.parse(claim), found) for claim in claims]
    written = pd.read_csv(tmp_path / "universes.csv")
    first = curve(Claim.parse(claims[0]), found).sort_values("universe")
    np.testing.assert_allclose(written["margin_1"], first["margin"], atol=1e-12)
    assert main([*asked, "--claim", "top noun brian:0"]) == 2
    assert "did you mean brain" in capsys.readouterr().err.splitlines()[-1]


def test_pooling_is_a_dimension_of_models(tmp_path):
    """Each universe is that of the mean, or of the last, of a word's sub-tokens."""
    names = tuple(str(tiny.save(kind, tmp_path / kind)) for kind in ("bert", "gpt2"))
    frame = tiny.word_stimuli(tiny.SENTENCES).table.assign(length=lambda t: t["length"] % 4)
    spec = in_files(tmp_path, frame, {}, models=names, layers=(3,), folds=3)
    analysis, store = finished(tmp_path, spec, {})[1:3]
    layers = [(name, 3) for name in names]
    assert multiverses.analysis_poolings(analysis) == ("standard", "mean")
    assert "pooling" not in choices_of(analysis)
    found = multiverse(
        analysis, layers, store, {"pooling": multiverses.analysis_poolings(analysis)}
    )
    assert found.universes["pooling"].tolist() == ["standard", "mean"]
    values = []
    for pooling, row in zip(("standard", "mean"), found.similarity.itertuples(), strict=True):
        options = ExtractionOptions(pooling=pooling)
        states = [from_model(analysis.whole, name, store, options) for name in names]
        values.append(rho(*(pdist(np.asarray(own[3], dtype=float)) for own in states)))
        assert row.rsa == pytest.approx(values[-1], abs=1e-4)
    assert abs(values[0] - values[1]) > 1e-3


@pytest.mark.slow
def test_a_claim_over_other_sentences(made):
    intervals = layer_intervals(made.analysis, made.store)
    closer = over_stimuli(Claim("closer", (A, B, C)), intervals)
    a, b, c = intervals.places((A, B, C))
    value = intervals.values[a, b] - intervals.values[a, c]
    without = intervals.values_without[:, a, b] - intervals.values_without[:, a, c]
    sizes = intervals.sizes
    assert len(sizes) == 3 and intervals.units.two_way
    assert closer[:4] == pytest.approx(tuple(map(float, jackknife(value, without, sizes)[:4])))
    top = over_stimuli(Claim("top", (B,), ("noun",)), intervals)
    above = [
        over_stimuli(Claim("above", (B,), ("noun", f)), intervals) for f in ("length", "position")
    ]
    assert top.value == min(own.value for own in above) and top.lower > 0
    more = over_stimuli(Claim("more-in", (B, C), ("noun",)), intervals)
    own = importance_difference_table(intervals, B, C).table.set_index("feature").loc["noun"]
    assert more[:4] == pytest.approx(tuple(own[["value", "lower", "upper", "p"]]))
    with refused("noun"):
        over_stimuli(Claim("top", (B,), ("nuon",)), intervals)


CHOSEN = {"folds": 3, "features": ("part_of_speech", "tense", "word_position")}
