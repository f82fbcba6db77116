"""Display names of features, models and layers on the screens: as the user has named them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names, distinct
from mlem_core.base.typing import parse_layer
from mlem_core.storage.store import Store
from pages.parts import choices, stored


def now() -> Names:
    """The display names of the chosen analysis."""
    return of(choices.get_one("analysis") or stored.EXAMPLE)


def of(job_id: str) -> Names:
    """The display names of an analysis."""
    from mlem_core.tasks import notes

    try:
        path = notes.path_of(job_id, stored.store())
    except InputError:
        return Names()  # no analysis has such an id, which the page says
    try:
        stat = path.stat()
        shown = _shown(job_id, stored.store(), (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError:
        shown = {}
    return replace(names_in_files(job_id), features=shown, models=shown)


# Asked for a hundred times a page. What is written anew is another file.
@lru_cache(maxsize=256)
def _shown(job_id: str, store: Store, file: tuple[int, int, int]) -> Mapping[str, str]:
    from mlem_core.tasks import notes

    return notes.read_notes(job_id, store).shown


def shared_names(first: str, second: str) -> Names:
    """Display names that two analyses have in common."""
    one, other = of(first), of(second)
    # As in `of`, features and models are named in one list.
    called = dict(one.features.items() & other.features.items())
    layers = dict(one.layers.items() & other.layers.items())
    axes = dict(one.axes.items() & other.axes.items())
    return Names(features=called, models=called, layers=layers, axes=axes)


def names_in_files(job_id: str) -> Names:
    """The names that files give layers and axes in an analysis; none while it is not done."""
    try:
        return Names() if job_id == stored.EXAMPLE else _of_files(job_id, stored.token_now())
    except InputError:
        return Names()


# Asked for many times a page; an analysis that is done does not change.
@lru_cache(maxsize=64)
def _of_files(job_id: str, visitor: str) -> Names:
    if not stored.find_job(job_id).spec.representations:
        return Names()
    return stored.open_analysis(job_id).names


def of_features(names: Sequence[str]) -> Callable[[str], str]:
    """Gives what each of some features (or terms) is called, all different."""
    return _apart(names, now().feature)


def of_models(names: Sequence[str]) -> Callable[[str], str]:
    """Gives what each of some models is called, all different."""
    return _apart(names, now().model)


def _apart(names: Sequence[str], called: Callable[[str], str]) -> Callable[[str], str]:
    shown = dict(zip(names, distinct(names, [called(one) for one in names]), strict=True))
    return lambda name: shown.get(name, name)


def of_all_layers() -> Callable[[str], str]:
    """Gives what each layer is called: `layer`, of many."""
    called = now()
    return lambda name: called.layer_title(parse_layer(name))


def layer(name: str) -> str:
    """ "MiniLM layer 3" of "minilm:3", "brain V1" of "brain:0"."""
    return of_all_layers()(name)
