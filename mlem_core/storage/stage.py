"""One kind of kept result: how it is found, made, written and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from mlem_core.storage.store import Store

T = TypeVar("T")
Tables = dict[str, pd.DataFrame]


def save_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write tables by name into an existing folder, as CSV."""
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)


def load_tables(folder: Path) -> Tables:
    """The tables that `save_tables` wrote, by name, every number to its last digit.

    An empty cell is a missing value, also where it was an empty text.
    """
    return {
        path.stem: pd.read_csv(path, keep_default_na=False, na_values=[""])
        for path in sorted(folder.glob("*.csv"))
    }


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
        """A kept result, or what `make` gives, which is then kept and not read again."""
        results: list[T] = []

        def fill(folder: Path) -> None:
            results.append(make())
            self.save(results[0], folder)

        folder = store.entry(self.name, self.version, fill, **depends_on)
        return results[0] if results else self.load(folder)
