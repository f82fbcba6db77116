"""How often noise that drifts in time is claimed to be something, and what is found when it is.

A recording is noise: independent from trial to trial, an autoregression of three strengths, a
random walk, or scanner drift (a trend and slow waves below independent noise). Its trials have a
topic, in blocks of ten or one at random for each, and a random number. A claim is a corrected p
below .05 of the importance of a feature, or a p below .05 of the held-out ρ, of one recording.

The same trials are taken as rows without an order, as rows in blocks of the length that is measured
in the recordings, in order (blocks and shifts in time), in four runs, and in order with a lag. With
a planted topic the same claims are its power.

A group is of subjects who saw the same trials, each with noise of its own. Its claim is a corrected
p below .05 of the mean importance of a feature over the subjects.
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
from mlem_core.extensions.recordings.time_course import TIME_COURSE
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
# Groups of each size, of one drift, design and handling.
GROUPS, GROUP_HANDLINGS = {4: 5, 20: 2}, ("order", "runs")
DRIFTING = ("AR .6", "random walk", "scanner drift")


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


def trials_and_layers(
    noise_kind: str, design: str, handling: str, planted: float, n_layers: int, seed: list[int]
) -> tuple[pd.DataFrame, FloatArray]:
    """Trials, and (n_layers, n_trials, n_units) noise with a planted topic."""
    rng = np.random.default_rng([*seed, NOISES.index(noise_kind), DESIGNS.index(design)])
    frame, topics = table(design, handling, rng)
    layers = []
    for _ in range(n_layers):
        patterns = rng.standard_normal((4, UNITS))
        layers.append(noise(noise_kind, rng) + planted * patterns[topics])
    return frame, np.stack(layers)


def analyzed(
    folder: Path, frame: pd.DataFrame, layers: dict[str, FloatArray], handling: str, **choices: Any
) -> SelectionContext:
    """An analysis of recordings in a new folder."""
    frame.to_csv(folder / "trials.csv", index=False)
    np.savez(folder / "scan.npz", **layers)
    if handling == "measured blocks":
        stimuli = read_csv(folder / "trials.csv")
        measured = serial_dependence(from_file(folder / "scan.npz", stimuli), stimuli)
        choices |= {"blocks": measured.block_length} if measured.is_there else {}
    if handling == "order, lag 10":
        choices["lag"] = "10"
    spec = AnalysisSpec(
        str(folder / "trials.csv"),
        representations=(("scan", str(folder / "scan.npz")),),
        estimator="ridge",
        values=(),
        **choices,
    )
    store = Store(folder / "store")
    return SelectionContext.from_analysis(run(spec, store, False), store)


def claims(noise_kind: str, design: str, handling: str, planted: float, seed: int) -> list[Row]:
    """Claims on some recordings of one set of trials."""
    drawn = noise_kind, design, handling, planted
    frame, recordings = trials_and_layers(*drawn, RECORDINGS, [seed])
    layers = {f"recording{number}": rows for number, rows in enumerate(recordings)}
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        context = analyzed(Path(name), frame, layers, handling)
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
                "blocks": context.analysis.spec.blocks,
            }
        )
    return rows


def group_claims(
    noise_kind: str, design: str, handling: str, planted: float, seed: int, n_subjects: int
) -> list[Row]:
    """Claims on the means of subjects who saw one set of trials."""
    drawn = noise_kind, design, handling, planted
    frame, subjects = trials_and_layers(*drawn, n_subjects, [seed, n_subjects])
    of_all = {"subjects": (("scan", "all"),), "axes": (("scan", "region"),)}
    with TemporaryDirectory() as name:
        context = analyzed(Path(name), frame, {"region": subjects}, handling, **of_all)
        course = TIME_COURSE.get(context, permutations=PERMUTATIONS)
    p = course.importance.set_index("feature")["p"]
    row = dict(zip(("noise", "design", "handling", "planted"), drawn, strict=True))
    return [row | {"seed": seed, "subjects": n_subjects} | p[["topic", "number"]].to_dict()]


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


def group_tasks(quick: bool) -> list[Task]:
    """The study of groups of subjects in parts."""
    return [
        Task(
            f"{n_subjects} subjects, {noise_kind}, {design}, {handling}, {planted}, {seed}",
            group_claims,
            (noise_kind, design, handling, planted, seed, n_subjects),
        )
        for n_subjects, n in GROUPS.items()
        for planted in DATA_SETS
        for seed in range(1 if quick or planted else n)
        for noise_kind, design, handling in product(DRIFTING, DESIGNS, GROUP_HANDLINGS)
    ]


def group_tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Groups of noise in which a feature is claimed, and those in which a planted topic is."""
    is_noise = rows["planted"] == 0
    tested = rows[["topic", "number"]].min(axis=1).where(is_noise, rows["topic"]) < 0.05
    kinds = is_noise.map({True: "noise", False: "planted topic"})
    cells = tested.groupby([kinds, rows["noise"], rows["subjects"], rows["handling"]])
    text = cells.sum().astype(str) + " of " + cells.size().astype(str)
    order = pd.MultiIndex.from_product([["noise", "planted topic"], DRIFTING, GROUPS])
    grid = text.unstack("handling", fill_value="")
    grid = grid.reindex(order, columns=GROUP_HANDLINGS, fill_value="")
    grid.index = pd.Index(
        [f"{kind}, {noise_kind}, {n} subjects" for kind, noise_kind, n in order],
        name="groups in time",
    )
    return {"groups in time": grid}


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
        total = some.groupby("handling")[["importance", "score"]].mean()
        grid.loc["**all**"] = [
            f"{row.importance:.1%} / {row.score:.1%}"
            for row in total.reindex(HANDLINGS).itertuples()
        ]
        tables[name] = grid
    return tables
