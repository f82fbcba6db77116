"""One kind of kept result: how it is found, made, written and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from mlem_core.storage.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Stage(Generic[T]):
    """A kind of result that a store keeps.

    Attributes
    ----------
    name, version : with what a result depends on, its key; the version is counted up when the same
        input gives another result or other files
    save : writes a result into an existing folder
    load : reads what `save` wrote
    """

    name: str
    version: int
    save: Callable[[T, Path], None]
    load: Callable[[Path], T]

    def where(self, store: Store, depends_on: Mapping[str, Any]) -> Path | None:
        """The folder of a kept result, in the store or in one of its overlays; else None."""
        return store.find(self.name, self.version, **depends_on)

    def find(self, store: Store, depends_on: Mapping[str, Any]) -> T | None:
        """A kept result; None where there is none."""
        folder = self.where(store, depends_on)
        return None if folder is None else self.load(folder)

    def get(self, store: Store, depends_on: Mapping[str, Any], make: Callable[[], T]) -> T:
        """A kept result, or what `make` gives, which is then kept."""

        def fill(folder: Path) -> None:
            self.save(make(), folder)

        return self.load(store.entry(self.name, self.version, fill, **depends_on))

    def kept(self, store: Store, depends_on: Mapping[str, Any], make: Callable[[], T]) -> T:
        """The same, but what `make` gives is not read again."""
        made: list[T] = []

        def fill(folder: Path) -> None:
            made.append(make())
            self.save(made[0], folder)

        folder = store.entry(self.name, self.version, fill, **depends_on)
        return made[0] if made else self.load(folder)
