"""What is looked up of each distinct cell once, however many rows have it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(dict[Key, Value], Generic[Key, Value]):
    """A function's value of each key, computed when the key first comes."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._function(key)
        return value

    def of(self, keys: Iterable[Key]) -> list[Value]:
        """The value of each key, in order."""
        return list(map(self.__getitem__, keys))
