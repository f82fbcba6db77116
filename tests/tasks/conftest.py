"""A store for each test, and an analysis that is still running when the test is over."""

import pytest

from mlem_core import AnalysisSpec, Store
from mlem_core.tasks import analyses


@pytest.fixture
def store(tmp_path):
    """What still runs in it after the test is cancelled."""
    store = Store(tmp_path / "store")
    yield store
    for job in analyses.recent(store):
        job.cancel()


@pytest.fixture(scope="session")
def long():
    """Loads SmolLM2, which takes far longer than any of these tests waits."""
    return AnalysisSpec(models=("smollm2",), device="cpu")
