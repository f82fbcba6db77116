"""One kind of thing, one registry: what stands in it is known wherever one is asked for."""

from __future__ import annotations

from typing import Protocol, TypeVar

from mlem_core.base.errors import check_choice


class Entry(Protocol):
    """What can be registered."""

    @property
    def name(self) -> str:
        """What a user calls it."""
        ...


E = TypeVar("E", bound=Entry)


class Registry(dict[str, E]):
    """The entries of one kind, by their names and in the order of their registration.

    Parameters
    ----------
    kind : what error messages call an entry, such as "distance"
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def register(self, entry: E) -> None:
        """Make an entry known by its name to everything that asks for one.

        Raises ValueError: another one has this name, by which what is kept in the store is found.
        """
        if entry.name in self:
            raise ValueError(f"there is a registered {self.kind} {entry.name!r} already.")
        self[entry.name] = entry

    def named(self, name: str) -> E:
        """The entry of this name; raises InputError, with the choices, where there is none."""
        check_choice(self.kind, name, self)
        return self[name]
