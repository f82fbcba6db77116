"""The worked example of docs/worked-example.md: its numbers, and its figure.

.venv/bin/python scripts/worked_example.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.moments import SetMoments
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics

IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "rsa-as-a-sum.svg"
WORDS = ("cat", "bird", "dogs", "runs", "sleeps", "sing")
FEATURES = pd.DataFrame(
    {
        "part of speech": ["noun", "noun", "noun", "verb", "verb", "verb"],
        "number": ["singular", "singular", "plural", "singular", "singular", "plural"],
    }
)
# (n_words, n_units) of two layers.
LAYERS = (
    np.array([[0, 0], [1, 1], [1, 3], [6, 0], [7, 2], [6, 5]], dtype=float),
    np.array([[0, 1], [2, 0], [0, 5], [4, 0], [6, 1], [3, 6]], dtype=float),
)


def six_words() -> tuple[SetMoments, FloatArray]:
    """The moments of all pairs in both layers, and the products (2, 2) of their centred ranks."""
    pairs = ComparedPairs.from_features(
        feature_columns(FEATURES), np.zeros(len(WORDS), dtype=np.int64)
    )
    layers = [lambda layer=layer: layer for layer in LAYERS]
    moments = pair_statistics(pairs, layers).moments
    every_block = np.ones(moments.n_blocks, dtype=bool)
    return moments.within(every_block), moments.rank_covariances(every_block)


def weights(moments: SetMoments, features: list[int]) -> FloatArray:
    """Weights (2, n_features) of the columns of some features that fit the ranks of both layers."""
    gram = moments.gram[np.ix_(features, features)]
    return np.asarray(np.linalg.solve(gram, moments.with_ranks[:, features].T).T)


def terms() -> pd.DataFrame:
    """The RSA correlation of the two layers as a sum: term, value."""
    moments, products = six_words()
    spread = np.sqrt(products[0, 0] * products[1, 1])

    def explained(features: list[int]) -> float:
        in_first = weights(moments, features)[0]
        return float(in_first @ moments.with_ranks[1, features] / spread)

    first, second, both = explained([0]), explained([1]), explained([0, 1])
    # Shapley values of two features: the mean of what each adds alone, and after the other.
    values = [
        (first + both - second) / 2,
        (second + both - first) / 2,
        products[0, 1] / spread - both,
    ]
    return pd.DataFrame({"term": [*FEATURES.columns, UNEXPLAINED], "value": values})


def main() -> None:
    from mlem_core import figures
    from mlem_core.figures.why import waterfall

    found = terms()
    figure = waterfall(found, list(FEATURES.columns))
    IMAGE.write_bytes(figures.as_file(figure, "svg", figures.Paper(width_mm=120)))
    moments, _ = six_words()
    print("sums of products of the columns\n", moments.gram)
    print("sums of products with the ranks of each layer\n", moments.with_ranks)
    print("weights in each layer\n", weights(moments, [0, 1]))
    print(found.to_string(), found["value"].sum())


if __name__ == "__main__":
    main()
