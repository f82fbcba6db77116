"""Analyses that are small enough for several processes, and their numbers by threads."""

from collections.abc import Iterator
from dataclasses import replace

import dask
import numpy as np
import pytest
from distributed import LocalCluster
from helpers.inputs import in_files, words

from mlem_core import Analysis, AnalysisSpec, Store, run


@pytest.fixture(scope="session")
def processes() -> Iterator[LocalCluster]:
    """Two workers of one core each; a unit that kills two of them is given up."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as made,
    ):
        yield made


@pytest.fixture
def cluster(processes: LocalCluster) -> LocalCluster:
    """The cluster with both workers, of which a test before may have killed some."""
    processes.wait_for_workers(2, timeout=60)
    return processes


@pytest.fixture(scope="session")
def files_only(tmp_path_factory: pytest.TempPathFactory) -> AnalysisSpec:
    """Five layers in a file, which need no model."""
    table, rng = words(40), np.random.default_rng(1)
    layers = {
        k: rng.standard_normal((len(table), 8)) @ rng.standard_normal((8, 12)) for k in range(5)
    }
    return in_files(tmp_path_factory.mktemp("made_up"), table, {"file": layers})


@pytest.fixture(scope="session")
def with_model(files_only: AnalysisSpec) -> AnalysisSpec:
    """A packaged model, whose representations lie in the store, and the file, whose do not."""
    return replace(files_only, models=("mini-gpt2",))


@pytest.fixture(scope="session")
def by_threads(files_only: AnalysisSpec, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """The analysis of the file by threads of this process."""
    return run(files_only, Store(tmp_path_factory.mktemp("threads")), progress=False)
