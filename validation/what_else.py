"""How often a candidate that means nothing is named, and how often a planted one is found.

Sentences of four words that recur, two layers that share words, sentences and a feature of words.
Candidates are names drawn for each word, sentence or stimulus, 2 to 60 of them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.data.candidates import Candidate
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.inference.corrections import SIGNIFICANT
from mlem_core.inference.what_else import rest_of
from validation.chance import LEVELS, labels, pairs_and_terms, simulated
from validation.work import Row, Task

# Stimuli, and data sets of so many; permutations, candidates, and the most values that one has.
SIZES = {60: 100, 300: 60}
PERMUTATIONS, NOISE, MOST = 99, 20, 60
# How far apart the values of a planted candidate move stimuli, in units of the layers' noise (.7).
EFFECT = 4.0
PART = 5


def part(n: int, planted: str, first: int, count: int) -> list[Row]:
    """Candidates of some data sets, one of them planted at a level, or none."""
    found: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([n, seed])
        frame, layers = simulated("uniform", n, rng)
        made = {
            f"noise {k}": labels(frame, LEVELS[k % 3], int(rng.integers(2, MOST + 1)), rng)
            for k in range(NOISE)
        }
        if planted:
            made["planted"] = labels(frame, planted, 4, rng)
            moved = 0.7 * EFFECT * np.eye(4)[pd.factorize(made["planted"])[0]]
            layers = [rows + moved for rows in layers]
        stimuli = from_frame(frame, "study")
        pairs, _ = pairs_and_terms(stimuli, layers, seed)
        asked = [Candidate(name, name, lambda _, own=own: own) for name, own in made.items()]  # type: ignore[misc]
        table = rest_of(pairs, stimuli, asked, n_permutations=PERMUTATIONS).table
        noise, own = (table[(table["candidate"] == "planted") == true] for true in (False, True))
        sure = table[(table["p"] < SIGNIFICANT) & (table["lower"] > 0)]["candidate"].tolist()
        found.append(
            {"n": n, "planted": planted or "none", "seed": seed, "candidates": len(table)}
            | {"false": bool((noise["p"] < SIGNIFICANT).any()), "noise": noise["gain"].mean()}
            | {"named": bool({*sure} - {"planted"}), "first": sure[:1] == ["planted"]}
            | {"gain": own["gain"].mean()}
        )
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    return [
        Task(f"{n}, {planted}, from {first}", part, (n, planted, first, PART))
        for n, count in ({60: PART} if quick else SIZES).items()
        for planted in ("", "word", "stimulus")
        for first in range(0, count if not planted else count // 4, PART)
    ]


def of_candidates(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often noise and a planted candidate are named, and their gains."""
    cells = rows.groupby(["n", "planted"], sort=False)
    error = cells["noise"].std() / np.sqrt(cells.size())
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
        }
    ).reset_index()
    none = table["planted"] == "none"
    table.loc[none, ["planted named first", "gain of the planted"]] = ""
    return {"candidates": table.set_index(["n", "planted"])}
