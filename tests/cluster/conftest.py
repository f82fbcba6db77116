"""One cluster of processes for all tests, and what is analysed on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import LocalCluster
from inputs import in_files, words

from mlem_core.analysis.spec import AnalysisSpec


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two workers of one core each; a piece of work that kills two of them is given up."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, np.ndarray]]:
    table, rng = words(40), np.random.default_rng(1)
    layers = {
        k: rng.standard_normal((len(table), 8)) @ rng.standard_normal((8, 12)) for k in range(5)
    }
    return tmp_path_factory.mktemp("made_up"), layers


@pytest.fixture(scope="session")
def spec(made_up: tuple[Path, dict[int, np.ndarray]]) -> AnalysisSpec:
    """A packaged model, whose representations lie in the store, and a file, whose do not."""
    folder, layers = made_up
    return in_files(folder, words(40), {"file": layers}, models=("mini-gpt2",))


@pytest.fixture(scope="session")
def files_only(made_up: tuple[Path, dict[int, np.ndarray]], spec: AnalysisSpec) -> AnalysisSpec:
    """The file alone, which needs no model."""
    folder, layers = made_up
    return in_files(folder, words(40), {"file": layers})
