"""How often noise is named as a candidate, a planted one is found, and the intervals hold.

Sentences of four words that recur, two layers that share words, sentences and a feature of words.
Candidates are names drawn for each word, sentence or stimulus, 2 to 800 of them. The reach of words
is studied in layers that are the sum of a vector of the word and one of the stimulus as long.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extensions.candidates.candidate_search import BLOCKS, common_share, score_candidates
from mlem_core.inference.intervals import SIGNIFICANT
from mlem_core.inference.resample import jackknife
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.stimuli.candidates import Candidate
from mlem_core.stimuli.stimulus_csv import from_frame
from validation.units import labels, pairs_and_terms, simulated
from validation.work import Row, Task

LEVELS = ("word", "sentence", "stimulus")
# Stimuli, and data sets of so many; permutations, candidates, and the most values that one has.
SIZES = {60: 30, 150: 20}
PERMUTATIONS, NOISE, MOST = 199, 20, 800
# How far apart the values of a planted candidate move stimuli, in units of the layers' noise (.7).
EFFECT = 4.0
PART = 5
# Words of four stimuli each, of which a quarter of the shared variance is a function of the word.
WORDS, REACHES = (30, 120), 200


def part(n: int, planted: str, first: int, count: int) -> list[Row]:
    """Candidates of some data sets, one of them planted at a level, or none."""
    found: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([n, 1_000 + seed])
        frame, layers = simulated("uniform", n, rng)
        made = {
            f"noise {k}": labels(frame, LEVELS[k % 3], int(2 * (MOST / 2) ** rng.random()), rng)
            for k in range(NOISE)
        }
        if planted:
            made["planted"] = labels(frame, planted, 4, rng)
            moved = 0.7 * EFFECT * np.eye(4)[pd.factorize(made["planted"])[0]]
            layers = [rows + moved for rows in layers]
        stimuli = from_frame(frame, "study")
        pairs, _ = pairs_and_terms(stimuli, layers, seed)
        asked = [Candidate(name, name, lambda _, own=own: own) for name, own in made.items()]  # type: ignore[misc]
        rest = score_candidates(pairs, stimuli, asked, n_permutations=PERMUTATIONS)
        noise, own = (
            rest.table[(rest.table["candidate"] == "planted") == true] for true in (False, True)
        )
        sure = [*rest.columns["candidate"]]
        found.append(
            {"study": "candidates", "n": n, "planted": planted or "none"}
            | {"seed": seed, "candidates": len(rest.table)}
            | {"false": bool((noise["p"] < SIGNIFICANT).any()), "noise": noise["gain"].mean()}
            | {"named": bool({*sure} - {"planted"}), "first": sure[:1] == ["planted"]}
            | {name: own[name].mean() for name in ("gain", "lower", "upper")}
        )
    return found


def _layers(n_words: int, rng: np.random.Generator) -> tuple[list[FloatArray], IntArray]:
    words = np.repeat(np.arange(n_words), 4)
    rows = rng.standard_normal((n_words, 30))[words] + rng.standard_normal((4 * n_words, 30))
    layers = [rows + 0.3 * rng.standard_normal(rows.shape) for _ in range(2)]
    return [squareform(rankdata(pdist(layer))) for layer in layers], words


def reach(n_words: int, first: int, count: int) -> list[Row]:
    """Shares of the RSA that are a function of the word, in some data sets."""
    found: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([n_words, seed])
        squares, words = _layers(n_words, rng)
        # A sentence has words of every kind.
        sentences = rng.permutation(len(words)) // 4
        units = StimulusUnits(sentences % 5, sentences, words)
        everyone = np.ones(len(words), dtype=bool)
        share, blocks = common_share(squares, words, everyone), units.blocks(BLOCKS)
        left = [common_share(squares, words, kept > 0) for kept in blocks.weights]
        bounds = jackknife(np.array(share), np.array(left), blocks.sizes)
        ends = {"lower": float(bounds.lower), "upper": float(bounds.upper)}
        found.append({"study": "reach", "n": n_words, "seed": seed, "gain": share, **ends})
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    candidates = [
        Task(f"{n}, {planted or 'none'}, from {first}", part, (n, planted, first, PART))
        for n, count in ({60: PART} if quick else SIZES).items()
        for planted in ("", "word", "stimulus")
        for first in range(0, count // 2 if planted else count, PART)
    ]
    return [
        Task(f"reach {n}, from {first}", reach, (n, first, 20))
        for n in WORDS
        for first in range(0, 20 if quick else REACHES, 20)
    ] + candidates


def of_candidates(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often noise and a planted candidate are named, and their gains; how reaches hold."""
    kept = rows[rows["study"] == "candidates"]
    cells = kept.groupby(["n", "planted"], sort=False)
    error = cells["noise"].std() / np.sqrt(cells.size())
    kept = kept.assign(holds=_holds(kept, cells["gain"].transform("mean")))
    table = pd.DataFrame(
        {
            "data sets": cells.size(),
            "candidates": cells["candidates"].mean().map("{:.1f}".format),
            "noise with p < .05": cells["false"].mean().map("{:.1%}".format),
            "noise named": cells["named"].mean().map("{:.1%}".format),
            "gain of noise": cells["noise"].mean().map("{:+.4f}".format)
            + error.map(" ± {:.4f}".format),
            "planted named first": cells["first"].mean().map("{:.0%}".format),
            "gain of the planted": cells["gain"].mean().map("{:.3f}".format),
            "interval holds the mean gain": kept.groupby(
                ["n", "planted"], sort=False
            )["holds"].mean().map("{:.0%}".format),
        }
    ).reset_index()  # fmt: skip
    none = table["planted"] == "none"
    table.loc[none, [*table.columns[-3:]]] = ""
    words = rows[rows["study"] == "reach"].groupby("n", sort=False)
    held = rows.assign(holds=_holds(rows, _true_share()))[rows["study"] == "reach"]
    reaches = pd.DataFrame(
        {
            "data sets": words.size(),
            "share of the word": words["gain"].mean().map("{:.3f}".format),
            "in a large set": f"{_true_share():.3f}",
            "interval holds it": held.groupby("n")["holds"].mean().map("{:.1%}".format),
        }
    )
    return {"candidates": table.set_index(["n", "planted"]), "reach": reaches}


def _holds(rows: pd.DataFrame, true: pd.Series | float) -> pd.Series:
    return (rows["lower"] <= true) & (rows["upper"] >= true)


def _true_share() -> float:
    squares, words = _layers(600, np.random.default_rng(0))
    return common_share(squares, words, np.ones(len(words), dtype=bool))
