"""What matters most in each kind of model: planted truths, and attempts to make it say what is not.

The sentences are made from arrays alone; how an analysis gets there is tested last.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from inputs import in_files, words
from scipy.stats import t

from mlem_core.analysis.run import run
from mlem_core.base.labels import Names
from mlem_core.cli.found import found
from mlem_core.inference.kinds import Kinds, kind_of, kinds
from mlem_core.inference.populations import Left
from mlem_core.storage.store import Store

COLUMNS = ("pos", "tense", "length")


def members(n: int, truth: tuple[float, ...], spread: float, seed: int) -> np.ndarray:
    """(n, 4) ρ of 0.5 and importances about the truth."""
    noise = np.random.default_rng(seed).standard_normal((n, len(truth))) * spread
    return np.column_stack((np.full(n, 0.5), np.array(truth) + noise))


def said(*groups: np.ndarray, left: Left | None = None, over: str = "models") -> Kinds:
    n = len(groups)
    found = [kind_of(f"k{i}", own, COLUMNS, left, n) for i, own in enumerate(groups)]
    return Kinds(tuple(found), over, Names())


def test_the_differences_are_those_of_members_by_t() -> None:
    for seed in range(50):
        own = members(3, (0.2, 0.15, 0.0), 0.02, seed)
        top = int(own[:, 1:].mean(axis=0).argmax())
        ahead = [own[:, 1 + top]]
        ahead += [own[:, 1 + top] - own[:, 1 + f] for f in range(3) if f != top]
        sure = all(one.mean() - t.ppf(0.975, 2) * one.std(ddof=1) / np.sqrt(3) > 0 for one in ahead)
        kind = kind_of("k", own, COLUMNS)
        assert (kind.top, kind.sure) == (COLUMNS[top], sure)
        assert kind.surely == sure  # one kind


def test_what_is_planted_in_each_kind_is_said_of_each() -> None:
    known = said(*(members(3, (0.3, 0.1, 0.0), 0.005, seed) for seed in range(5)))
    assert known.headline == "Over 3 models of each of 5 kinds: pos matters most in each."
    assert "95 % intervals are over models on these stimuli, and speak of other" in known.how_sure
    assert known.how_sure.startswith("Importance ")


def test_kinds_that_differ_are_named_and_others_are_not_separated() -> None:
    tied = [[0.2, 0.3, 0], [0.3, 0.2, 0], [0.2, 0.2, 0], [0.3, 0.25, 0]]
    known = said(
        members(4, (0.3, 0.1, 0.0), 0.003, 0),
        members(4, (0.1, 0.3, 0.0), 0.003, 1),
        np.column_stack((np.full(4, 0.5), tied)),
        np.column_stack((np.full(4, 0.02), members(4, (0.3, 0.1, 0.0), 0.003, 0)[:, 1:])),
    )
    assert known.headline == (
        "Over 4 models of each of 4 kinds: pos matters most in k0; tense matters most in k1."
    )
    assert known.unsure == (
        "In k2 pos is not separated from tense; in k3 no feature does (held-out ρ 0.02)."
    )
    assert known.how_sure.startswith(known.unsure)


def test_one_kind_that_is_unsure_makes_the_others_be_corrected() -> None:
    rng = np.random.default_rng(0)
    sure = alone = 0
    for _ in range(200):
        own = np.column_stack((np.full(3, 0.5), rng.normal((0.3, 0.1, 0.0), 0.05, (3, 3))))
        kind = kind_of("k", own, COLUMNS, n_kinds=5)
        sure, alone = sure + kind.surely, alone + kind.sure
    assert 0 < sure < alone


@pytest.mark.parametrize("n", [2, 3, 5])
def test_features_that_matter_alike_are_seldom_told_apart(n: int) -> None:
    """Of 400 analyses whose features all have one importance, 5 % may be wrong, and few are."""
    rng, wrong = np.random.default_rng(n), 0
    for _ in range(400):
        groups = [
            np.column_stack((np.full(n, 0.5), rng.normal(0.2, 0.05, (n, 3)))) for _ in range(3)
        ]
        wrong += "most for sure" not in said(*groups).headline
    assert wrong <= 0.05 * 400


def test_two_features_that_matter_alike_in_one_kind_are_no_claim_of_each() -> None:
    """The other kinds are as sure as can be: all hangs on the one that is not."""
    rng, wrong = np.random.default_rng(0), 0
    sure = members(3, (0.3, 0.0, 0.0), 0.001, 0)
    for _ in range(400):
        tied = np.column_stack((np.full(3, 0.5), rng.normal((0.3, 0.3, 0.0), 0.05, (3, 3))))
        wrong += "most in each" in said(sure, tied, sure).headline
    assert wrong <= 0.05 * 400


def test_noise_that_all_members_share_is_seen_over_the_stimuli() -> None:
    """Labels that are permuted fit the stimuli by chance, the same in every member."""
    rng = np.random.default_rng(0)
    own = members(3, (0.2, 0.19, 0.0), 1e-4, 0)
    assert kind_of("k", own, COLUMNS).sure
    blocks = own[None] + rng.normal(0, 0.005, (20, 1, 4))
    kind = kind_of("k", own, COLUMNS, Left(blocks, (20,)))
    assert not kind.sure and kind.rivals == ("tense",)


def test_copies_of_a_member_are_one() -> None:
    own = members(1, (0.3, 0.1, 0.0), 0.01, 0).repeat(3, axis=0)
    kind = kind_of("k", own, COLUMNS)
    assert kind.members == 1 and not kind.sure
    known = said(own, members(3, (0.3, 0.1, 0.0), 0.005, 1))
    assert known.headline == "Over 3 models of one kind: pos matters most in k1."
    assert known.how_sure.endswith("Of k0 there is one checkpoint, which says nothing of its kind.")


def test_a_feature_ahead_of_others_that_is_not_above_0_is_none() -> None:
    own = np.array([[0.5, about, -0.3, -0.3] for about in (-0.01, 0.0, 0.01)])
    known = said(own, own + 0.001)
    assert known.headline.endswith(": no feature matters most for sure.")
    assert "in k1 no feature is above 0 for sure" in known.unsure


def test_an_analysis_says_it_on_the_command_line(tmp_path: Path) -> None:
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5)[:, None] * 4
    names = {group: [f"{group}{seed}" for seed in range(3)] for group in ("f", "g")}
    made_up = {
        one: {n: noun + rng.standard_normal((len(table), 2)) for n in range(2)}
        for own in names.values()
        for one in own
    }
    spec = in_files(tmp_path, table, made_up, groups=names)
    analysis = run(spec, Store(tmp_path / "store"), progress=False)
    results = analysis.results()
    first = found(analysis, results)[0]
    assert first.startswith("Over 3 models of each of 2 kinds: noun matters most in each.")
    assert "one file each" not in first
    known = kinds(analysis, results)
    assert known is not None
    means = results.importance.groupby(["model", "feature"])["importance"].mean()
    for kind, own in zip(known.kinds, names.values(), strict=True):
        np.testing.assert_allclose(kind.importance, means.unstack()["noun"][own].mean())
    alone = analysis.select(layers=[layer for layer in analysis.layers if layer[0][1] == "0"])
    assert kinds(analysis, analysis.results_of(alone), alone) is None
