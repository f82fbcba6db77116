"""Section `view`: processor time of the server for what a page shows, on an analysis of one's own.

15 made-up models, 64 layers, 400 words and 8 features, two of them numbers: opened, then with a
feature or a model switched off, and with another pair of layers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.timing import Table
from mlem_core.analysis.analysis import Selection
from mlem_core.analysis.context import FITS, SelectionContext
from mlem_core.analysis.files import load_analysis, save_analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Layer
from mlem_core.figures.canvas import canvas_data
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.storage.store import Store

WORDS, MODELS, UNITS = 400, 15, 48
NOMINAL = {"pos": 6, "tense": 3, "number": 2, "animacy": 2, "person": 3, "gender": 3}


def made_up(folder: Path) -> AnalysisSpec:
    """An analysis of made-up words and layers, which depend on the features and on their model."""
    rng = np.random.default_rng(0)
    stimuli = pd.DataFrame({"sentence": [f"here is the word w{i}" for i in range(WORDS)]})
    for name, n in NOMINAL.items():
        stimuli[name] = [f"{name}{k}" for k in rng.integers(0, n, WORDS)]
    stimuli["length"] = rng.integers(2, 12, WORDS)
    stimuli["frequency"] = rng.normal(3, 1, WORDS).round(3)
    stimuli.to_csv(folder / "words.csv", index=False)
    features = stimuli.drop(columns="sentence")
    coded = pd.get_dummies(features).to_numpy(float)
    coded[:, :2] /= coded[:, :2].max(axis=0) / 2
    files = {}
    for model in range(MODELS):
        depth = 5 if model < 4 else 4
        first, last = rng.gamma(1.0, 1.0, (2, coded.shape[1]))
        layers = {}
        for layer in range(depth):
            share = layer / (depth - 1)
            mixed = (coded * (first * (1 - share) + last * share)) @ rng.standard_normal(
                (coded.shape[1], UNITS)
            )
            states = mixed + 2.0 * rng.standard_normal((WORDS, UNITS))
            layers[f"layer_{layer}"] = states.astype(np.float32)
        path = folder / f"model{model:02d}.npz"
        np.savez(path, **layers)  # type: ignore[arg-type]
        files[f"model{model:02d}"] = str(path)
    return AnalysisSpec(str(folder / "words.csv"), representations=files)


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder / "cache")
        analysis = run(made_up(folder), store, progress=False)
        context = SelectionContext.from_analysis(analysis, store)
        took = processor_time(lambda: FITS.get(context))
        table.add("fit all metric models, which the run does", f"{took:.2f} s")
        (folder / "result").mkdir()
        save_analysis(analysis, folder / "result")
        took = processor_time(lambda: load_analysis(folder / "result"))
        table.add("open the analysis", f"{took:.2f} s")
        whole, memory = analysis.select(), dict[Hashable, Any]()
        fewer = replace(whole, features=whole.features[1:])
        some = tuple(layer for layer in analysis.layers if layer[0] != "model03")

        def show(what: str, selection: Selection, pair: tuple[Layer, Layer] | None = None) -> None:
            drawing = FigureOptions(pair, screen=True)
            of = analysis, selection, store
            shown = FigureContext(*of, patient=False, memory=memory, drawing=drawing)
            texts: list[str] = []
            took = processor_time(lambda: texts.append(json.dumps(canvas_data(shown))))
            size = f"{len(texts[0]) / 1000:.0f} kB"
            table.add(f"canvas: {what}", f"{took:.2f} s", size, target="at most 0.5 s")

        show("all of it, with imports", whole)
        show("another pair", whole, (analysis.layers[2], analysis.layers[40]))
        show("without a model", replace(whole, layers=some))
        show("without a feature, importances still to be fitted", fewer)
        took = processor_time(lambda: FITS.get(context.reselect(features=fewer.features)))
        table.add("fit them anew, in the background", f"{took:.2f} s")
        show("without a feature, fitted", fewer)
    return f"{MODELS} made-up models, {len(analysis.layers)} layers, {WORDS} words, 8 features"


def processor_time(call: Callable[[], object]) -> float:
    """Seconds of processor time of one call, of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start
