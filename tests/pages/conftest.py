"""The app in this process: a store for each test, and what it runs is done when a click returns."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.screens import Own, Screen, in_this_process, ran, small_spec, store, window

from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, runner
from pages.parts import background

__all__ = ["store", "window"]  # fixtures


@pytest.fixture
def nothing(store, tmp_path, monkeypatch):
    """A store of a program without its example."""
    monkeypatch.setattr(examples, "FOLDER", tmp_path / "none")
    return store


@pytest.fixture(scope="session")
def opened_example(tmp_path_factory):
    """The store of a server whose first visitor has looked at the example."""
    root = tmp_path_factory.mktemp("example") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLEM_CACHE", str(root))
        patch.setattr(background, "begin_ahead", lambda work: None)
        Screen()
    return root


@pytest.fixture
def shipped(opened_example, monkeypatch):
    """The same, to be looked at: nothing in its store may change."""
    monkeypatch.setenv("MLEM_CACHE", str(opened_example))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Three analyses of one upload: one with other folds, one with a model that is not there."""
    folder = tmp_path_factory.mktemp("own")
    store = Store(folder / "cache")
    spec = small_spec(folder)

    def kept(path):
        return str(analyses.keep_upload(Path(path).read_bytes(), Path(path).name, store))

    files = tuple((name, kept(path)) for name, path in spec.representations)
    spec = replace(spec, stimuli=kept(spec.stimuli), representations=files)
    others = [replace(spec, folds=4), replace(spec, seed=7, models=("/not/there",))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "start_process", in_this_process)
        return Own(store, [ran(one, store) for one in (spec, *others)], folder)


@pytest.fixture
def own(made, monkeypatch):
    """The analyses that were run yesterday, to be looked at: nothing in their store may change."""
    monkeypatch.setenv("MLEM_CACHE", str(made.store.root))
    return made


@pytest.fixture
def mine(made, tmp_path, monkeypatch):
    """The same in a store of one's own, to be changed."""
    root = tmp_path / "cache"
    shutil.copytree(made.store.root, root)
    monkeypatch.setenv("MLEM_CACHE", str(root))
    store = Store(root)
    found = [analyses.find(job.id, store) for job in made.jobs]
    return Own(store, [job for job in found if job is not None], made.files)
