"""How often intervals by influence hold the truth: other sentences and another lexicon each time.

Sentences are made of words that recur. What is the truth is what data sets of this size give on
average, so that a bias that all of them share is not counted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from mlem_core.measures.importance_of_moments import permutation_importance
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.folds import group_folds
from mlem_core.estimators.ridge_solver import fit_ridge
from mlem_core.inference.influence import score_influence, similarity_influence, values_without
from mlem_core.inference.resample import squared_effect_bounds, standard_error, t_quantile
from mlem_core.measures.contributions import contributions
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.moments import (
    PairMoments,
    blocks_of_folds,
    layer_moments,
    pair_moments,
    products_of_ranks,
)
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.scored_pairs import FoldPairsIndex, ScoredPairs
from mlem_core.pairs.unit_sums import unit_sums
from validation.work import Row, Task

# Sentences, words of a sentence, and times that a word of the lexicon occurs on average.
SIZES = {60: (3, 4), 40: (4, 3), 100: (3, 4)}
DATA_SETS, PART = 200, 5
FEATURES = ("binary", "class", "number", "null", "of sentence")


def simulated(n_sentences: int, seed: int) -> tuple[pd.DataFrame, list[FloatArray], StimulusUnits]:
    """Stimuli, two layers and their folds and units.

    Layers share three features of the words and one of the sentence, a part of every word that no
    feature describes, and each has parts of words and sentences of its own.
    """
    rng = np.random.default_rng([51, n_sentences, seed])
    n_words, times = SIZES[n_sentences]
    n = n_sentences * n_words
    n_lexicon = n // times
    words, sentence = rng.integers(0, n_lexicon, n), np.repeat(np.arange(n_sentences), n_words)
    binary, kind = rng.integers(0, 2, n_lexicon), rng.integers(0, 4, n_lexicon)
    number, null = rng.uniform(size=n_lexicon), rng.integers(0, 3, n_lexicon)
    of_sentence = rng.uniform(size=n_sentences)
    features = pd.DataFrame(
        {
            "binary": np.array(["x", "y"])[binary[words]],
            "class": np.array(list("abcd"))[kind[words]],
            "number": number[words],
            "null": np.array(list("pqr"))[null[words]],
            "of sentence": of_sentence[sentence],
        }
    )
    places = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    common = rng.standard_normal((n_lexicon, 2))
    layers = []
    for scale in (1.0, 0.8):
        rows = rng.standard_normal((n, 6))
        rows += 0.5 * rng.standard_normal((n_lexicon, 6))[words]
        rows[:, :3] += 0.5 * rng.standard_normal((n_sentences, 3))[sentence]
        rows[:, 0] += 2.0 * scale * binary[words]
        rows[:, 1:3] += places[kind[words]]
        rows[:, 3] += 3.0 * scale * number[words]
        rows[:, 4] += 2.0 * of_sentence[sentence]
        rows[:, 4:] += 0.7 * common[words]
        layers.append(rows)
    folds = group_folds(sentence, 5, seed)
    return features, layers, StimulusUnits(folds, sentence, words)


def data_set(n_sentences: int, seed: int, target: str = "distance") -> list[Row]:
    """Values of one data set, and their standard errors by influence."""
    features, layers, units = simulated(n_sentences, seed)
    columns = PairColumns.of(feature_columns(features, resolved=("class",)))
    squared = [squared_distances(layer) for layer in layers]
    doubled = [pair_ranks(own) for own in squared]
    folds = units.folds
    moments = moments_of(columns, folds, squared, doubled)
    tests = tests_of(columns, folds, squared)
    fit = fit_ridge(moments, tests, range(moments.n_folds), target=target)
    rho = np.concatenate(
        [own.scores(fit.coef[:, [fold]]).rho for fold, own in enumerate(tests.folds)], axis=1
    )
    drop = permutation_importance(tests, fit.coef).drop.mean(axis=1)
    scores = np.column_stack((rho.mean(axis=1), drop))
    parts = contributions(moments)
    blocks = units.blocks()
    sums = unit_sums(moments, blocks.weights == 0, doubled, squared)
    by_similarity = similarity_influence(sums)
    by_score = score_influence(sums, fit.coef, fit.alpha, target)
    names = ["ρ", *(f"importance {name}" for name in FEATURES)]
    numbers = dict(zip(names, zip(scores[0], by_score[:, 0].T, strict=True), strict=True))
    terms = np.concatenate((parts.terms, parts.unexplained[None]))[:, 0, 1]
    names = [f"term {name}" for name in (*FEATURES, "unexplained")]
    numbers |= dict(
        zip(names, zip(terms, by_similarity.terms[..., 0, 1].T, strict=True), strict=True)
    )
    numbers["RSA"] = (moments.rsa[0, 1], by_similarity.rsa[:, 0, 1])
    explained = moments.rsa - parts.unexplained
    numbers["explained of A"] = (explained[0, 0], by_similarity.explained[:, 0, 0])
    rows = []
    for name, (number, influence) in numbers.items():
        value = np.asarray(number)
        without = values_without(value, influence, blocks.sizes)
        error = standard_error(without, blocks.sizes)
        reach = t_quantile(min(blocks.sizes)) * error
        lower, upper = value - reach, value + reach
        by_t = upper
        if name.startswith(("importance", "term")) and not name.endswith("unexplained"):
            lower, upper = squared_effect_bounds(value, reach)
        rows.append(
            {
                "sentences": n_sentences,
                "seed": seed,
                "target": target,
                "quantity": name,
                "value": float(value),
                "error": float(error),
                "lower": float(lower),
                "upper": float(upper),
                "upper by t": float(by_t),
            }
        )
    return rows


def moments_of(
    columns: PairColumns,
    folds: IntArray,
    squared: list[FloatArray],
    doubled: list[NDArray[np.uint32]],
) -> PairMoments:
    """Moments of all pairs."""
    parts = [layer_moments(columns, folds, *pair) for pair in zip(squared, doubled, strict=True)]
    products = products_of_ranks(
        blocks_of_folds(folds),
        len(squared),
        lambda layer, first, last: doubled[layer][first:last],
    )
    return pair_moments(columns, folds, parts, products)


def tests_of(columns: PairColumns, folds: IntArray, squared: list[FloatArray]) -> ScoredPairs:
    """Test pairs of every fold."""
    tested = []
    for fold in range(int(folds.max()) + 1):
        index = FoldPairsIndex.of(columns, np.flatnonzero(folds == fold))
        sums = [index.rank_sums(own[index.places(len(folds))]) for own in squared]
        rank_sums, squares = zip(*sums, strict=True)
        tested.append(index.with_layers(np.stack(rank_sums), np.array(squares)))
    return ScoredPairs(tuple(tested))


def part(n_sentences: int, first: int, n: int, target: str) -> list[Row]:
    """The rows of some data sets."""
    return [row for seed in range(first, first + n) for row in data_set(n_sentences, seed, target)]


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """Standard errors over true ones, and how often 95 % intervals hold the mean."""
    table = []
    for (n, target, name), sets in rows.groupby(["sentences", "target", "quantity"], sort=False):
        truth, spread = sets["value"].mean(), sets["value"].std()
        above = sets["lower"] <= truth
        table.append(
            {
                "sentences": n,
                "target": target,
                "quantity": name,
                "mean": truth,
                "true error": spread,
                "error / true": np.sqrt((sets["error"] ** 2).mean()) / spread,
                "coverage": (above & (truth <= sets["upper"])).mean(),
                "by t": (above & (truth <= sets["upper by t"])).mean(),
                "sets": len(sets),
            }
        )
    return pd.DataFrame(table)


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one size; the sizes take turns."""
    parts = [
        Task(f"{n} {target} {first}", part, (n, first, PART, target))
        for first in range(0, DATA_SETS, PART)
        for n, target in ((60, "distance"), (60, "rank"), (40, "distance"))
    ]
    return parts[:1] if quick else parts
