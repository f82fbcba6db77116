"""Section `systems`: 43 systems of 25 layers on 300 words, from the command line to the page."""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.timing import Table
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.extensions.systems.properties import read_systems
from mlem_core.figures.canvas import canvas_data
from mlem_core.figures.plots import FIGURES, FigureContext, FigureOptions, draw
from mlem_core.storage.store import Store

SYSTEMS, LAYERS, WORDS, UNITS, FAMILIES = 43, 25, 300, 64, 10
SHOWN = ("similarity", "why_layers", "layer_maps", "profiles", "system_distances", "system_map")


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stimuli, systems = made_up(folder)
        store = Store(folder / "cache")
        command = [sys.executable, "-m", "mlem_core", "analyze", "--stimuli", stimuli]
        command += ["--systems", systems, "--out", str(folder / "out")]
        environment = {**os.environ, "MLEM_CACHE": str(store.root)}
        took = []
        for _ in range(2):  # the second time all states are in the store
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, env=environment, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        said = f"{took[1]:.0f} s of processor time"
        table.add("analyze, from stored states to all tables", said, f"{took[0]:.0f} s at first")
        spec = AnalysisSpec(stimuli, **read_systems(systems))
        analysis = run(spec, store, progress=False)
        drawing = FigureOptions(screen=True)
        context = FigureContext(analysis, analysis.select(), store, drawing=drawing)
        sizes = {
            name: len(drawn.figure.to_json()) for name in SHOWN if (drawn := draw(name, context))
        }
        sizes["the canvas"] = len(str(canvas_data(context)))
        for name, size in sizes.items():
            title = FIGURES[name].title if name in FIGURES else name
            table.add(f"in the page: {title}", f"{size / 1e6:.2f} MB", target="at most 5")
    return f"{SYSTEMS} made-up systems of {LAYERS} layers, {WORDS} words"


def made_up(folder: Path) -> tuple[str, str]:
    """Paths of a table of words and of a table of systems, whose layers depend on their family."""
    rng = np.random.default_rng(0)
    stimuli = pd.DataFrame({"sentence": [f"the word w{i} is here" for i in range(WORDS)]})
    stimuli["word_index"] = 2
    for feature, n in (("pos", 6), ("tense", 3), ("number", 2), ("animacy", 2)):
        stimuli[feature] = [f"{feature}{k}" for k in rng.integers(0, n, WORDS)]
    stimuli["length"] = rng.integers(1, 8, WORDS)
    coded = pd.get_dummies(stimuli.drop(columns=["sentence", "word_index"])).to_numpy(float)
    coded[:, 0] /= 7
    stimuli.to_csv(folder / "stimuli.csv", index=False)
    with open(folder / "systems.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("system", "group", "release_date", "parameters", "position", "norm"))
        for k in range(SYSTEMS):
            family = k % FAMILIES
            first, last = (np.abs(np.sin(np.arange(coded.shape[1]) * (family + c))) for c in (1, 2))
            layers = {}
            for n in range(LAYERS):
                depth = n / (LAYERS - 1)
                mixed = coded * (first * (1 - depth) + last * depth)
                states = mixed @ rng.standard_normal((coded.shape[1], UNITS))
                layers[f"layer_{n:02d}"] = states + 0.8 * rng.standard_normal((WORDS, UNITS))
            np.savez(folder / f"s{k}.npz", **{n: x.astype(np.float32) for n, x in layers.items()})
            date, size = f"{2018 + family % 7}-0{1 + k % 9}", 10 ** (7 + k % 4)
            rows.writerow((f"s{k}.npz", f"f{family}", date, size, "abc"[family % 3], "ab"[k % 2]))
    return str(folder / "stimuli.csv"), str(folder / "systems.csv")
