"""The worked example of docs/worked-example.md: its numbers, and its figure.

.venv/bin/python scripts/worked_example.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.measures.decomposition import UNEXPLAINED, by_pattern
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks
from mlem_core.pairs.tables import PairTables

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


def six_words() -> tuple[PairTables, float]:
    """The pair table of both layers, all pairs in one fold, and their RSA correlation."""
    index = PairIndex.build(feature_columns(FEATURES), np.zeros(len(WORDS), dtype=np.int64))
    ranks = PairRanks(len(LAYERS), len(WORDS) * (len(WORDS) - 1) // 2)
    layers = [lambda layer=layer: layer for layer in LAYERS]
    tables = pair_tables(index, layers, keep_ranks=ranks.put)
    return tables, float(ranks.rsa()[0, 1])


def explained(tables: PairTables) -> float:
    """Covariance of the mean ranks by pattern in both layers, in units of ρ."""
    counts, sums = by_pattern(tables)
    return float((sums.prod(axis=1) / counts).sum() / np.sqrt(tables.rank_squares.prod()))


def terms() -> pd.DataFrame:
    """The RSA correlation of the two layers as a sum: term, value."""
    tables, rsa = six_words()
    one, other = FEATURES.columns
    both, first, second = (explained(tables.of_features(s)) for s in ([one, other], [one], [other]))
    # Shapley values of two features: the mean of what each adds alone, and after the other.
    values = [(first + both - second) / 2, (second + both - first) / 2, rsa - both]
    return pd.DataFrame({"term": [one, other, UNEXPLAINED], "value": values})


def main() -> None:
    from mlem_core import figures
    from mlem_core.figures.why import waterfall

    found = terms()
    figure = waterfall(found, list(FEATURES.columns))
    IMAGE.write_bytes(figures.as_file(figure, "svg", figures.Paper(width_mm=120)))
    print(found.to_string(), found["value"].sum())


if __name__ == "__main__":
    main()
