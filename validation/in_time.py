"""How often noise that drifts in time is claimed to be something, and what is found when it is.

A recording is noise: independent from trial to trial, an autoregression of three strengths, a
random walk, or scanner drift (a trend and slow waves below independent noise). Its trials have a
topic, in blocks of ten or one at random for each, and a random number. A claim is a corrected p
below .05 of the importance of a feature, or a p below .05 of the held-out ρ, of one recording.

The same trials are taken as rows without an order, as rows in blocks of the length that is measured
in the recordings, in order (blocks and shifts in time), in four runs, and in order with a lag. With
a planted topic the same claims are its power.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.run import run
from mlem_core.analysis.serial_dependence import serial_dependence
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import FloatArray
from mlem_core.inference.importance_null import IMPORTANCE_CHANCE, SCORE_CHANCE
from mlem_core.representations.arrays import from_file
from mlem_core.stimuli.roles import read_csv
from mlem_core.storage.store import Store
from validation.work import Row, Task

TRIALS, UNITS, RECORDINGS = 160, 20, 5
STRENGTHS = {"independent": 0.0, "AR .3": 0.3, "AR .6": 0.6, "AR .9": 0.9}
NOISES = (*STRENGTHS, "random walk", "scanner drift")
DESIGNS = ("blocks of ten", "single trials")
HANDLINGS = ("rows", "measured blocks", "order", "runs", "order, lag 10")
PERMUTATIONS = 39
# Standard deviations of a topic's pattern, in those of a trial's noise.
PLANTED = 0.75
DATA_SETS, QUICK = {0.0: 3, PLANTED: 1}, 1


def noise(kind: str, rng: np.random.Generator) -> FloatArray:
    """(n_trials, n_units) of standard deviation 1, but for a random walk, whose steps are of 1."""
    steps = rng.standard_normal((TRIALS, UNITS))
    if kind == "random walk":
        return np.cumsum(steps, axis=0)
    if kind == "scanner drift":
        time = np.linspace(0.0, 1.0, TRIALS)[:, None]
        waves = [np.cos(np.pi * k * time + rng.uniform(0, 2 * np.pi, UNITS)) for k in range(1, 4)]
        return steps + 2.0 * sum(wave * rng.standard_normal(UNITS) for wave in waves)
    strength = STRENGTHS[kind]
    rows = steps.copy()
    for trial in range(1, TRIALS):
        rows[trial] = strength * rows[trial - 1] + np.sqrt(1.0 - strength**2) * steps[trial]
    return rows


def table(design: str, handling: str, rng: np.random.Generator) -> tuple[pd.DataFrame, FloatArray]:
    """The trials with their features and when they came; and the topic of each, by number."""
    topics = np.repeat(rng.permutation(np.arange(TRIALS // 10) % 4), 10)
    if design == "single trials":
        topics = rng.permutation(topics)
    trials = np.arange(1, TRIALS + 1)
    frame = pd.DataFrame(
        {
            "stimulus": [f"trial {trial}" for trial in trials],
            "topic": np.array(list("abcd"))[topics],
            "number": rng.random(TRIALS),
        }
    )
    if handling == "runs":
        length = TRIALS // 4
        frame = frame.assign(run=(trials - 1) // length + 1, trial=(trials - 1) % length + 1)
    elif handling.startswith("order"):
        frame = frame.assign(trial=trials)
    return frame, topics


def claims(noise_kind: str, design: str, handling: str, planted: float, seed: int) -> list[Row]:
    """Claims on some recordings of one set of trials."""
    rng = np.random.default_rng([seed, NOISES.index(noise_kind), DESIGNS.index(design)])
    frame, topics = table(design, handling, rng)
    layers = {}
    for recording in range(RECORDINGS):
        patterns = rng.standard_normal((4, UNITS))
        layers[f"recording{recording}"] = noise(noise_kind, rng) + planted * patterns[topics]
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        folder, choices = Path(name), dict[str, Any]()
        frame.to_csv(folder / "trials.csv", index=False)
        np.savez(folder / "scan.npz", **layers)
        if handling == "measured blocks":
            stimuli = read_csv(folder / "trials.csv")
            found = serial_dependence(from_file(folder / "scan.npz", stimuli), stimuli)
            choices = {"blocks": found.block_length} if found.is_there else {}
        if handling == "order, lag 10":
            choices = {"lag": "10"}
        spec = AnalysisSpec(
            str(folder / "trials.csv"),
            representations=(("scan", str(folder / "scan.npz")),),
            estimator="ridge",
            values=(),
            **choices,
        )
        store = Store(folder / "store")
        analysis = run(spec, store, False)
        context = SelectionContext.from_analysis(analysis, store)
        importances = IMPORTANCE_CHANCE.get(context, permutations=PERMUTATIONS)
        scores = SCORE_CHANCE.get(context, permutations=PERMUTATIONS)
    for recording in range(RECORDINGS):
        of_layer = importances[importances["layer"] == recording].set_index("feature")["p"]
        rho = scores.loc[scores["layer"] == recording, "p"].iloc[0]
        rows.append(
            {
                "noise": noise_kind,
                "design": design,
                "handling": handling,
                "planted": planted,
                "seed": seed,
                "recording": recording,
                "topic": of_layer["topic"],
                "number": of_layer["number"],
                "rho": rho,
                "blocks": choices.get("blocks", 0),
            }
        )
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    return [
        Task(
            f"{noise_kind}, {design}, {handling}, {planted}, {seed}",
            claims,
            (noise_kind, design, handling, planted, seed),
        )
        for planted, n in DATA_SETS.items()
        for seed in range(QUICK if quick else n)
        for noise_kind, design, handling in product(NOISES, DESIGNS, HANDLINGS)
        # With a planted topic, where claims hold.
        if not (planted and handling == "rows" and noise_kind != "independent")
    ]


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Claims on noise, and on recordings with a planted topic: a row a noise and design."""
    rows = rows.assign(
        importance=rows[["topic", "number"]].min(axis=1) < 0.05, score=rows["rho"] < 0.05
    )
    tables = {}
    for name, some in (
        ("claims in time", rows[rows["planted"] == 0]),
        ("power in time", rows[rows["planted"] > 0].assign(importance=rows["topic"] < 0.05)),
    ):
        cells = some.groupby(["noise", "design", "handling"], sort=False)
        mean = cells[["importance", "score"]].mean()
        text = mean["importance"].map("{:.0%}".format) + mean["score"].map(" / {:.0%}".format)
        grid = text.unstack("handling").reindex(columns=HANDLINGS)
        order = pd.MultiIndex.from_product([NOISES, DESIGNS])
        grid = grid.reindex(order).fillna("")
        grid.index = pd.Index([f"{kind}, {design}" for kind, design in order], name=name)
        tables[name] = grid
    return tables
