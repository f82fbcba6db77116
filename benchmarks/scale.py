"""A whole analysis of many stimuli: seconds, peak memory, and whether it finds what is planted.

python -m benchmarks.scale N_STIMULI N_LAYERS N_UNITS [PAIRS|all]

A process of its own: from a table and a mapped file of layers to all tables, as `analyze` does it;
and, where pairs are not all, the interval of the RSA correlation of the first two layers. What is
planted is known to as many decimals as one likes: features set some units apart, all other units
are noise, so that pairs of the population can be drawn without their stimuli.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.memory import peak_megabytes
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, parse_pairs
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.stimuli.stimulus_csv import write_csv
from mlem_core.storage.store import Store

WORDS = 10  # of a sentence
NOISE = 0.5
BAND = 50_000
# Pairs of the population that give the RSA correlation in it, to within 2·10⁻⁴.
POPULATION = 2**25


def features(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Three features, and one that is in no layer."""
    return pd.DataFrame(
        {
            "a": rng.choice(list("xyz"), n),
            "b": rng.choice(list("uv"), n),
            "c": rng.integers(0, 6, n),
            "nothing": rng.choice(list("pqrs"), n),
        }
    )


def planted(table: pd.DataFrame, layer: int) -> NDArray[np.float64]:
    """(n_stimuli, 4) what the features set apart: a in all layers, b in the even ones, c in odd."""
    units = [2.0 * (table["a"] == value) for value in "xyz"]
    units.append(table["c"] / 2 if layer % 2 else 3.0 * (table["b"] == "u"))
    return np.stack([np.asarray(unit, dtype=np.float64) for unit in units], axis=1)


def truth(n_units: int) -> float:
    """The RSA correlation of two layers in the population, from pairs that share no stimulus."""
    rng = np.random.default_rng(1)
    first, second = features(POPULATION, rng), features(POPULATION, rng)
    ranks = []
    for layer in range(2):
        apart = np.square(planted(first, layer) - planted(second, layer)).sum(axis=1)
        apart += 2 * NOISE**2 * rng.chisquare(n_units - 4, POPULATION)
        ranks.append(np.argsort(np.argsort(apart)))
    return float(np.corrcoef(*ranks)[0, 1])


def written(folder: Path, n: int, n_layers: int, n_units: int) -> AnalysisSpec:
    """The table of the stimuli and the file of the layers."""
    rng = np.random.default_rng(0)
    table = features(n, rng)
    sentence = [" ".join(f"w{number}_{k}" for k in range(WORDS)) for number in range(n // WORDS)]
    write_csv(
        table.assign(
            sentence=np.repeat(sentence, WORDS), word_index=np.tile(np.arange(WORDS), n // WORDS)
        ),
        folder / "words.csv",
    )
    layers = {}
    for layer in range(n_layers):
        path = folder / f"layer_{layer:02d}.npy"
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, n_units))
        for start in range(0, n, BAND):
            band = slice(start, start + BAND)
            rows[band] = NOISE * rng.standard_normal(rows[band].shape)
            rows[band, :4] = planted(table.iloc[band], layer)
        layers[path.stem] = rows
    np.savez(folder / "layers.npz", **layers)  # type: ignore[arg-type]
    files = (("m", str(folder / "layers.npz")),)
    return AnalysisSpec(str(folder / "words.csv"), representations=files, as_in="paper1")


def main(n: int, n_layers: int, n_units: int, pairs: str | None) -> None:
    """Print what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        spec = written(Path(folder), n, n_layers, n_units)
        if pairs is not None:
            spec = AnalysisSpec(
                spec.stimuli,
                representations=spec.representations,
                pairs=parse_pairs(pairs),
                as_in="paper1",
            )
        store = Store(Path(folder) / "store", overlays=())
        start = time.perf_counter()
        analysis = run(spec, store, progress=False)
        results = analysis.results()
        took = time.perf_counter() - start
        print(
            f"{n:,} stimuli, {n_layers} layers of {n_units} units: {took:.1f} s, "
            f"{peak_megabytes():.0f} MB with the mapped file, {analysis.pairs.n_pairs:,} pairs",
            flush=True,
        )
        for notice in analysis.notices:
            print(f"  {notice}")
        means = results.importance.groupby(["layer", "feature"])["importance"].mean()
        print(means.unstack().round(4).to_string())
        if analysis.design.is_complete and pairs is not None:
            return
        start = time.perf_counter()
        why = with_intervals(explain(analysis, ("m", 0), ("m", 1)), analysis, store)
        rsa, took = why.whole.iloc[0], time.perf_counter() - start
        print(
            f"  RSA {rsa['value']:.4f} [{rsa['lower']:.4f}, {rsa['upper']:.4f}], in the population "
            f"{truth(n_units):.4f}; interval in {took:.1f} s"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4] if len(sys.argv) > 4 else None)
