"""Contents of this server's store: analyses, their names and uploads."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import StopException, get_script_run_ctx

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names, distinct
from mlem_core.base.parallel import cancellable
from mlem_core.base.typing import parse_layer
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, deletion, notes
from mlem_core.tasks.access import view_only
from mlem_core.tasks.analyses import Job
from pages.parts import choices

P = ParamSpec("P")
T = TypeVar("T")

EXAMPLE = "example"  # `mlem_core.tasks.examples.ID`, without its imports

# How a cache tells these apart: of selections Streamlit would look through all layers, in
# milliseconds.
_HASHED: Any = {
    "mlem_core.analysis.analysis.Selection": repr,
    "mlem_core.stimuli.stimulus_set.StimulusSet": attrgetter("digest"),
    "mlem_core.storage.store.Store": lambda store: str(store.root),
    "builtins.function": attrgetter("__qualname__"),
}

_UPLOAD = re.compile(r"[0-9a-f]{64}/[^/\\]+")


def store() -> Store:
    """The store of this server."""
    return _opened(os.environ.get("MLEM_CACHE"))


# Asked for a hundred times a page. To open one twice at a time does no harm.
@lru_cache(maxsize=8)
def _opened(root: str | None) -> Store:
    """A store, without analyses that were deleted earlier and old uploads of no analysis."""
    opened = Store()
    if not view_only():
        deletion.remove_deleted(opened)
        analyses.purge_uploads(opened)
    return opened


def kept(
    max_entries: int, *, copied: bool = False, show_spinner: str | bool = False, **more: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that keeps what a function returns, by its arguments.

    What differs by store has the store among them. An argument whose name begins with _ is no part
    of the key; what raises is not kept.

    Parameters
    ----------
    copied : each caller gets a copy; otherwise all get the same object
    more : further options of `st.cache_data` and `st.cache_resource`
    """
    cache: Any = st.cache_data if copied else st.cache_resource
    options = {"max_entries": max_entries, "show_spinner": show_spinner, **more}
    decorator: Callable[[Callable[P, T]], Callable[P, T]] = cache(**options, hash_funcs=_HASHED)
    return decorator


def keep_files(*files: Any) -> str:
    """The name of an uploaded file, or of several as a folder, kept in the store."""
    contents = [(upload.name, upload.getvalue()) for upload in files]
    return upload_name(analyses.keep_uploads(contents, store()))


def upload_name(path: str | Path) -> str:
    """Name of an uploaded file in the URL: its digest and its name."""
    return "/".join(Path(path).parts[-2:])


def upload_path(name: str) -> Path:
    """The file of an upload named in a URL.

    Raises
    ------
    InputError
        No such upload is in this machine's store.
    """
    path = store().root / "uploads" / name
    if not _UPLOAD.fullmatch(name) or name.endswith(("/.", "/..")) or not path.exists():
        raise InputError(
            f"the uploaded file {name.rpartition('/')[2]!r} is not on this machine; upload it "
            "again."
        )
    return path


def find_job(job_id: str) -> Job:
    """The job that the state names; InputError where this machine has none such."""
    job = analyses.find(job_id, store()) if re.fullmatch(r"[0-9a-zA-Z_-]+", job_id) else None
    if job is None:
        raise InputError(
            "The analysis in this address is not on this machine; run it again on the page "
            "New analysis."
        )
    return job


def analysis_names() -> dict[str, str]:
    """Display names of analyses, by id: as the user named them, or by what was chosen."""
    return notes.job_names(analyses.recent(store()), store())


def analysis_name(job: Job) -> str:
    """Display name of an analysis among all that there are."""
    return analysis_names().get(job.id) or notes.derived(job)


def open_analysis(job_id: str) -> Analysis:
    """A finished analysis, loaded once for all windows; InputError as `find_job`."""
    return _open(store(), job_id, find_job(job_id))


def read(reader: Callable[..., T], *request: Any) -> T:
    """What a function reads of an uploaded file; what cannot be read is not tried again."""
    # An upload is named by its content.
    content = _read(reader, request)
    if isinstance(content, InputError):
        raise InputError(str(content))
    return content


@kept(16, show_spinner="Reading the file …")
def _read(reader: Callable[..., Any], request: tuple[Any, ...]) -> Any:
    try:
        with while_here():
            return reader(*request)
    except InputError as error:
        return error


@kept(8, show_spinner="Opening the analysis …")
def _open(store: Store, job_id: str, _job: Job) -> Analysis:
    return _job.analysis()


def while_here() -> contextlib.AbstractContextManager[None]:
    """Stop what is computed meanwhile when the window is closed: nobody would see it."""
    run = get_script_run_ctx()
    if run is None or not runtime.exists():
        return contextlib.nullcontext()
    window, server = run.session_id, runtime.get_instance()

    def look() -> None:
        if not server.is_active_session(window):
            raise StopException

    return cancellable(look)


def names() -> Names:
    """The display names of the chosen analysis."""
    return display_names(choices.get_one("analysis") or EXAMPLE)


def display_names(job_id: str) -> Names:
    """The display names of an analysis."""
    titles: Mapping[str, str] = {}
    in_files = Names()
    # The page says that no analysis has such an id, or that it is not done.
    with contextlib.suppress(InputError):
        path = notes.notes_path(job_id, store())
        with contextlib.suppress(OSError):
            now = path.stat()
            titles = _shown(job_id, store(), (now.st_mtime_ns, now.st_size, now.st_ino))
        if job_id != EXAMPLE:
            in_files = _file_names(job_id, store())
    return replace(in_files, features=titles, models=titles)


# Asked for a hundred times a page. What is written anew is another file.
@lru_cache(maxsize=256)
def _shown(job_id: str, store: Store, file: tuple[int, int, int]) -> Mapping[str, str]:
    return notes.read_notes(job_id, store).shown


def shared_names(first: str, second: str) -> Names:
    """Display names that two analyses have in common."""
    one, other = display_names(first), display_names(second)
    # As in `display_names`, features and models are named in one list.
    called = dict(one.features.items() & other.features.items())
    layers = dict(one.layers.items() & other.layers.items())
    axes = dict(one.axes.items() & other.axes.items())
    return Names(features=called, models=called, layers=layers, axes=axes)


# Asked for many times a page; an analysis that is done does not change.
@lru_cache(maxsize=64)
def _file_names(job_id: str, store: Store) -> Names:
    """The names that files give layers and axes in an analysis."""
    if not find_job(job_id).spec.representations:
        return Names()
    return open_analysis(job_id).names


def feature_titles(features: Sequence[str]) -> dict[str, str]:
    """What each of some features (or terms) is called, all different."""
    called = names().feature
    return dict(zip(features, distinct(features, list(map(called, features))), strict=True))


def model_titles(models: Sequence[str]) -> dict[str, str]:
    """What each of some models is called, all different."""
    called = names().model
    return dict(zip(models, distinct(models, list(map(called, models))), strict=True))


def layer_titles(layers: Sequence[str]) -> dict[str, str]:
    """What each of some layers "model:layer" is called."""
    called = names()
    return {name: called.layer_title(parse_layer(name)) for name in layers}


def layer_title(name: str) -> str:
    """ "MiniLM layer 3" of "minilm:3", "brain V1" of "brain:0"."""
    return names().layer_title(parse_layer(name))
