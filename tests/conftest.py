"""Fixtures that several test files share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from find_browser import find_browser, launch_arguments
from helpers import tiny
from helpers.inputs import Finished, finished, three_layers, two_systems
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser, sync_playwright
from xdist.scheduler import LoadScopeScheduling

from mlem_core import Analysis, Store
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.loading import open_model
from mlem_core.tasks import examples

pytest_plugins = ("helpers.timing",)

# The same examples in every run, and nothing kept of them.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def group(nodeid: str) -> str:
    """What runs in one process: a file, and all files of the app that share a server."""
    file = nodeid.split("::")[0]
    # Those that have servers of their own may run beside those that share one.
    shared = file.startswith("tests/browser/") and not file.endswith("test_hosting.py")
    return "app" if shared else file


def turn(nodeid: str) -> int:
    """When a group begins: long ones first, so that the processes end together.

    Those that start processes come after some that have the kernels compiled, for all of them.
    """
    its = group(nodeid)
    slow = ("representations", "report", "project", "tasks", "browser")
    long = [f"tests/{folder}/" for folder in slow]
    return next((n for n, start in enumerate(("app", *long)) if its.startswith(start)), 9)


class ByGroup(LoadScopeScheduling):
    """Where several processes share the tests, each takes whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Processes that share the cores are in each other's way with threads for products."""
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByGroup:
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.nodeid))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one core: several that wait for each other burn many times the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of a Chrome or Chromium that starts; without one the test fails, it is not skipped."""
    path = find_browser()
    if path is None:
        pytest.fail("no Chrome or Chromium was found; `make test` installs one", pytrace=False)
    # Kaleido looks on the PATH only, and Playwright's own browser is not there.
    os.environ.setdefault("BROWSER_PATH", path)
    return path


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator[Browser]:
    """A headless Chromium, one for the whole run; a test opens its own `new_context()`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path, headless=True, args=launch_arguments()
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"), overlays=())


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def architectures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    """A tiny model of every architecture, saved and read again."""
    root = tmp_path_factory.mktemp("architectures")
    return {k: open_model(str(tiny.save(k, root / k)), "cpu") for k in tiny.ARCHITECTURES}


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three layers of one system: two with much of a colour and some of a size, and noise.

    All tests of a process share it: they read it, and compute what they like beside it.
    """
    folder = tmp_path_factory.mktemp("planted")
    return finished(folder, *three_layers(folder))


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Two systems of three layers that turn from noun to position, of 40 sentences of words."""
    folder = tmp_path_factory.mktemp("systems")
    return finished(folder, *two_systems(folder))


@pytest.fixture(scope="session")
def example() -> Analysis:
    """The finished analysis that ships with the program."""
    return examples.example()
