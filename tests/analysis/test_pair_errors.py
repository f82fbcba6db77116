"""The error that the choice of the pairs has, as stated: by hand, and against many choices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mlem_core.analysis.pair_errors import DesignScores
from mlem_core.data.folds import group_folds
from mlem_core.measures.importance import mean_scores
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.half_samples import together
from mlem_core.pairs.patterns import PairIndex

N, BUDGET, CHOICES = 300, 12_000, 24
LAYER = ("m", 0)


def index_of(seed: int, budget: int | None = BUDGET) -> tuple[PairIndex, np.ndarray]:
    """Stimuli with two features that matter and one that does not; a choice of their pairs."""
    rng = np.random.default_rng(3)
    features = pd.DataFrame(
        {
            "a": rng.choice(list("xyz"), N),
            "b": rng.integers(0, 5, N).astype(np.float64),
            "nothing": rng.choice(list("uv"), N),
        }
    )
    rows = rng.standard_normal((N, 6))
    rows[:, 0] += 2.5 * (features["a"] == "x")
    rows[:, 1] += 0.8 * features["b"]
    folds = group_folds(np.arange(N) // 3, 5, 0)
    design = PairDesign.of(folds, budget, seed)
    return PairIndex.build(feature_columns(features), folds, design=design), rows


def stated(seed: int) -> tuple[pd.DataFrame, list]:
    """What is stated of a choice of the pairs, and the tables of each of its designs."""
    index, rows = index_of(seed)
    scores, designs = DesignScores("ridge", interactions=False), []

    def put(position, tables):
        designs.extend(tables)
        scores.put(position, tables)

    tables = pair_tables(index, [lambda: rows], options=PassOptions(of_design=put))
    return scores.table([LAYER], [0], tables, np.ones((1, 1)), np.ones((8, 1, 1))), designs


def test_errors_are_those_of_halves_by_hand():
    table, designs = stated(0)
    whole, off = mean_scores(together(designs))[0], []
    for row in range(1, 8):
        for odd in (0, 1):
            # Sylvester's matrix, by the parity of the bits that row and column have in common.
            half = [own for k, own in enumerate(designs) if (row & k).bit_count() % 2 == odd]
            off.append(mean_scores(together(half))[0] - whole)
    np.testing.assert_allclose(table["error"], np.sqrt(np.mean(np.square(off), axis=0)))
    biases = np.mean(off, axis=0)
    of_designs = np.mean([mean_scores(own)[0, 1] for own in designs])
    biases[1] = (of_designs - table["value"][1]) / 7
    np.testing.assert_allclose(table["bias"], biases)
    assert list(table["feature"]) == ["", "", "a", "b", "nothing"]


def test_errors_are_as_large_as_choices_of_the_pairs_differ():
    index, rows = index_of(0, None)
    truth = mean_scores(pair_tables(index, [lambda: rows]))[0]
    tables = [stated(seed)[0] for seed in range(CHOICES)]
    off = np.stack([table["value"] for table in tables]) - truth
    said = np.stack([table["error"] for table in tables])
    ratio = np.sqrt((said**2).mean(axis=0) / (off**2).mean(axis=0))
    # The spread of 24 choices is known to within a third; of what is 0 the error is too large.
    assert (ratio[:4] > 0.65).all() and (ratio[:4] < 1.6).all(), ratio
    assert 0.65 < ratio[4] < 3
    held = (np.abs(off) <= 2.365 * said).mean(axis=0)
    assert (held > 0.79).all(), held
    assert truth[0] > 0.3 and truth[2] > 0.05 and truth[3] > 0.05
    assert truth[4] == pytest.approx(0, abs=2e-3)
