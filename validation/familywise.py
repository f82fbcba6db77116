"""How often one of several columns that mean nothing has a corrected p below .05.

Columns whose draws are exchangeable, so that the level is that of the correction alone; and
features of stimuli and of words beside two layers that know neither, by the whole computation.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.inference.intervals import SIGNIFICANT
from mlem_core.inference.permutation_null import chance_at_level, corrected_p
from mlem_core.stimuli.stimulus_csv import from_frame
from validation.units import WORDS, labels, made_text, pairs_and_terms
from validation.work import Row, Task

# Columns and permutations; whether draws are skewed.
EXCHANGEABLE = [
    (columns, permutations, skewed)
    for columns in (2, 8, 20)
    for permutations in (20, 199)
    for skewed in (False, True)
]
DRAWN = 4_000
FEATURES, STIMULI, PERMUTATIONS, SETS, PART = 8, 60, 99, 600, 30


def exchangeable(n_columns: int, n_permutations: int, skewed: bool) -> list[Row]:
    """The smallest p of columns that mean nothing, in `DRAWN` data sets."""
    rng = np.random.default_rng([n_columns, n_permutations, skewed])
    level = 0
    for _ in range(4):
        draws = rng.standard_normal((1 + n_permutations, n_columns, DRAWN // 4))
        draws = np.exp(1.5 * draws) if skewed else draws
        p = corrected_p(draws, np.ones(n_columns, dtype=bool)).min(axis=0)
        level += int((p <= SIGNIFICANT).sum())
    about = {"columns": n_columns, "permutations": n_permutations}
    return [about | {"skewed": skewed, "below": level, "sets": DRAWN, "pipeline": False}]


def by_the_pipeline(first: int, count: int) -> list[Row]:
    """The smallest p of features that mean nothing, by the whole computation, in some data sets."""
    below = 0
    for seed in range(first, first + count):
        rng = np.random.default_rng([FEATURES, seed])
        sentences, words = made_text("uniform", STIMULI, rng)
        frame = pd.DataFrame({"sentence": sentences, "word_index": np.arange(len(words)) % WORDS})
        for feature in range(FEATURES):
            unit = "word" if feature % 2 else "stimulus"
            frame[f"f{feature}"] = labels(frame, unit, (2, 4, 0)[feature % 3], rng)
        of_words = rng.standard_normal((int(words.max()) + 1, 4))[words]
        layers = [of_words + rng.standard_normal(of_words.shape) for _ in range(2)]
        stimuli = from_frame(frame, "study")
        pairs, _ = pairs_and_terms(stimuli, layers, seed)
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        below += int(np.nanmin(chance.p[:, 0, 1]) <= SIGNIFICANT)
    about = {"columns": FEATURES, "permutations": PERMUTATIONS, "skewed": False}
    return [about | {"below": below, "sets": count, "pipeline": True}]


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    some = EXCHANGEABLE[:2] if quick else EXCHANGEABLE
    return [
        Task(f"{columns} columns, {n}, {'skewed' if skewed else 'normal'}", exchangeable, how)
        for how in some
        for columns, n, skewed in [how]
    ] + [
        Task(f"pipeline, from {first}", by_the_pipeline, (first, PART))
        for first in range(0, PART if quick else SETS, PART)
    ]


def of_families(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often the smallest corrected p is below .05."""
    kinds = np.where(
        rows["pipeline"], "by the whole computation", np.where(rows["skewed"], "skewed", "normal")
    )
    by = rows.assign(draws=kinds).groupby(["columns", "permutations", "draws"], sort=False)
    n = by["sets"].sum()
    share = by["below"].sum() / n
    return {
        "familywise level": pd.DataFrame(
            {
                "a p ≤ .05": share.map("{:.1%}".format),
                "Monte-Carlo error": np.sqrt(share * (1 - share) / n).map("{:.1%}".format),
                "data sets": n,
            }
        )
    }
