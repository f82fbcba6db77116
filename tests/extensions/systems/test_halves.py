"""Squared distances over halves of the stimuli: by hand, and 0 on average for equal systems."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.inputs import in_files, words
from scipy import stats
from scipy.spatial.distance import pdist

from mlem_core import Store, run
from mlem_core.extensions.systems.group_spec import Member
from mlem_core.extensions.systems.halves import (
    HALVES,
    cross_validated,
    profile_squares,
    relation_squares,
)
from mlem_core.extensions.systems.model_groups import Members
from mlem_core.extensions.systems.summary import GroupSummary
from mlem_core.inference.intervals import Left
from mlem_core.pairs.resampling_units import draw_halves


def one_layer(n):
    names = [f"s{at}" for at in range(n)]
    return Members.from_table([Member(name, name) for name in names], [(name, 0) for name in names])


@pytest.mark.parametrize("most", [1000, 40])
def test_halves_share_no_sentence_and_have_every_fold(most):
    units, folds = np.repeat(np.arange(60), 3), np.repeat(np.arange(60) % 4, 3)
    first, second = draw_halves(units, folds, most, np.random.default_rng(0))
    assert not {*units[first]} & {*units[second]}
    assert len(first) + len(second) == pytest.approx(min(most, 180), abs=15)
    for rows in (first, second):
        assert (np.diff(rows) > 0).all() and (np.bincount(units[rows])[units[rows]] == 3).all()
        assert np.ptp(np.bincount(folds[rows])) <= 3


def test_squares_of_profiles_are_products_of_differences_at_equal_depth():
    layers = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    members = Members.from_table([Member("a", "a"), Member("b", "b")], layers)
    first, second = np.random.default_rng(0).standard_normal((2, 5, 3))
    expected = [
        ((first[i] - first[j]) * (second[i] - second[j])).sum() for i, j in ((0, 2), (1, 4))
    ]
    squares = profile_squares(first, second, members)
    assert squares[0, 1] == squares[1, 0] == pytest.approx(np.mean(expected))
    assert squares[0, 0] == 0


def test_squares_of_relations_leave_out_the_two_systems():
    first, second = np.random.default_rng(1).random((2, 6, 6))
    first, second = first + first.T, second + second.T
    squares = relation_squares(first, second, one_layer(6))
    for a, b in itertools.combinations(range(6), 2):
        others = [c for c in range(6) if c not in (a, b)]
        differences = [
            half[a, others] / np.linalg.norm(half[a, others])
            - half[b, others] / np.linalg.norm(half[b, others])
            for half in (first, second)
        ]
        assert squares[a, b] == squares[b, a] == pytest.approx(differences[0] @ differences[1])
    # In proportion: noise lowers all similarities of a system alike.
    lower = first.copy()
    lower[0], lower[:, 0] = 0.3 * first[0], 0.3 * first[:, 0]
    changed = relation_squares(lower, lower, one_layer(6))[0]
    np.testing.assert_allclose(changed, relation_squares(first, first, one_layer(6))[0])


def test_equal_systems_lie_0_apart_whatever_their_noise():
    rng, members, squares = np.random.default_rng(2), one_layer(4), []
    noise = np.array([0.1, 0.1, 1.0, 3.0])[:, None]
    for _ in range(400):
        halves = rng.random(5) + noise * rng.standard_normal((1, 2, 4, 5))
        crossed = cross_validated(
            lambda a, b: profile_squares(a, b, members), halves, halves[0, 0], None
        )
        squares.append(crossed.values[np.triu_indices(4, 1)])
    error = np.std(squares, axis=0) / np.sqrt(len(squares))
    assert (np.abs(np.mean(squares, axis=0)) < 3.5 * error).all()


def test_without_a_block_squares_change_as_those_of_all_stimuli_do():
    rng, members = np.random.default_rng(3), one_layer(3)
    halves, total, left = rng.random((2, 2, 3, 4)), rng.random((3, 4)), rng.random((5, 3, 4))
    square = lambda a, b: profile_squares(a, b, members)  # noqa: E731
    crossed = cross_validated(square, halves, total, Left(left, (5,)))
    change = square(left[2], left[2]) - square(total, total)
    np.testing.assert_allclose(crossed.left.without[2], crossed.values + change)


@pytest.mark.slow
def test_an_analysis_keeps_its_halves_and_fits_the_second_level_to_them(tmp_path):
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5)[:, None]
    layers = {
        f"m{n}": dict(enumerate([n * noun + rng.standard_normal((len(table), 4))]))
        for n in range(8)
    }
    spec = in_files(tmp_path, table, layers, folds=3)
    spec = replace(spec, labels=tuple((name, (f"size:{name[1]}",)) for name in layers))
    store = Store(tmp_path / "cache")
    analysis = run(spec, store)
    context = GroupSummary.from_analysis(analysis, store)
    assert HALVES.find(context) is None and not len(context.second_level.scores)
    assert "over halves" in context.second_level.notes[-1]
    HALVES.get(context)
    halves = HALVES.find(context.reselect(layers=(("m2", 0), ("m5", 0))))
    assert halves.profiles.shape[:3] == (3, 2, 2) and halves.rsa.shape == (3, 2, 2, 2)
    # Sentences of the first half of the first draw, and SciPy's RSA of the two layers there.
    units = np.asarray(analysis.stimuli.groups)
    rows = draw_halves(units, analysis.folds, 1000, np.random.default_rng(analysis.spec.seed))[0]
    apart = [pdist(layers[name][0][rows]) for name in ("m2", "m5")]
    assert halves.rsa[0, 0, 0, 1] == pytest.approx(stats.spearmanr(*apart).statistic, abs=1e-6)
    assert HALVES.folder(context) is not None
    summary = GroupSummary.from_analysis(analysis, store)
    second, measured = summary.second_level, summary.distances
    assert {*second.importances["measure"]} == {"profiles", "rsa"}
    assert measured["best_match"].squares is None and measured["profiles"].squares.values[1, 7] > 0
