"""Section `cluster`: the pass over the pairs on a Dask cluster of this machine, over threads."""

from __future__ import annotations

import contextvars
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.data import MODELS
from benchmarks.timing import Table, in_turn
from mlem_core.analysis.layer_tables import TABLES
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.work import cores
from mlem_core.scale.cluster import computing_on
from mlem_core.storage.store import Store


def _here(call: Callable[[], None]) -> None:
    """Call it without the cluster that is there: in a context of its own."""
    contextvars.Context().run(call)


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    spec = AnalysisSpec("probing", models=MODELS, as_in="paper1")
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, overlays=())

        def whole() -> None:
            shutil.rmtree(Path(folder) / TABLES.name, ignore_errors=True)
            run(spec, store, progress=False)

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
        f"the probing set in all layers of {' and '.join(MODELS)}, representations in the store, "
        f"pair tables not; medians of {runs} runs in turn, the cluster being there; local:1 is a "
        f"process with {cores()} threads, local:2 are two with one each"
    )
