"""Section `cluster`: the pass over the pairs on a Dask cluster of this machine, over threads."""

from __future__ import annotations

import contextvars
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.timing import Table, in_turn
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.executor import computing_on
from mlem_core.base.parallel import cores
from mlem_core.data import datasets
from mlem_core.storage.store import Store

LAYERS, UNITS = 38, 576


def _spec(folder: Path) -> AnalysisSpec:
    """The probing set in made-up layers."""
    rng, n = np.random.default_rng(0), len(datasets.load("probing"))
    layers = {
        f"layer_{k:02d}": rng.standard_normal((n, UNITS)).astype(np.float32) for k in range(LAYERS)
    }
    np.savez(folder / "made_up.npz", **layers)  # type: ignore[arg-type]
    return AnalysisSpec("probing", representations=(("made-up", str(folder / "made_up.npz")),))


def _here(call: Callable[[], None]) -> None:
    """Call it without the cluster that is there: in a context of its own."""
    contextvars.Context().run(call)


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    with tempfile.TemporaryDirectory() as folder:
        spec, number = _spec(Path(folder)), count()

        def whole() -> None:
            run(spec, Store(Path(folder) / f"store {next(number)}", overlays=()), progress=False)

        whole()
        for named, most in (("local:1", 1.10), ("local:2", 1.15)):
            start = time.perf_counter()
            with computing_on(named):
                took = time.perf_counter() - start
                whole()  # a worker loads what is compiled
                there, here = in_turn(whole, lambda: _here(whole), runs)
            table.add(
                f"stimuli to pair tables and RSA on {named}",
                f"{there:.2f} s",
                f"{here:.2f} s by threads",
                f"{there / here:.2f}",
                f"at most {most:.2f}",
            )
            table.add(f"starting {named}", f"{took:.1f} s")
    return (
        f"the probing set in {LAYERS} made-up layers of {UNITS} units, from a file; medians of "
        f"{runs} runs in turn, the cluster being there; `local:1` is a process with {cores()} "
        "threads, `local:2` are two with one each"
    )
