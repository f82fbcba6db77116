"""Analyses that a cluster runs before they are asked for, each by one worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.executor import executor
from mlem_core.storage.store import Store


def run_ahead(specs: Sequence[AnalysisSpec], store: Store, done: Callable[[int], None]) -> None:
    """Have what analyses need in the store, where workers share it; elsewhere do nothing.

    It is for many small analyses: a worker has one of them, not a layer. What is wrong with one is
    left to the run that asks for it, which finds the others.

    Parameters
    ----------
    done : called with how many have been run
    """
    where = executor()
    if where.is_here or not where.shares(store.root):
        return
    shared = (store.root,)
    for number, _ in enumerate(where.each_of(_kept, specs, shared, folder=store.root), 1):
        done(number)


def _kept(root: Path, spec: AnalysisSpec) -> None:
    run(spec, Store(root), progress=False)
