"""Whether this machine serves strangers to each other, and what each of them may use of it.

`MLEM_SHARED` names a TOML file; without it everything belongs to one user, who may read whatever
the program may read. `docs/security.md` says what each entry promises.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError, check_choice

VARIABLE = "MLEM_SHARED"
VISITORS = "visitors"  # the folder of a store with a store for each visitor


@dataclass(frozen=True)
class Shared:
    """Limits and permissions of a shared server.

    Attributes
    ----------
    models : folders whose subfolders (and GGUF files) are models that visitors name by their names
    hub : whether a model that is not here may be fetched from the Hugging Face hub
    upload_mb : the largest file that is taken
    uploads_mb : of all files that a visitor has uploaded
    disk_gb : of all that is kept for a visitor
    disk_all_gb : of all that is kept for all visitors together
    runs_at_once : of all visitors; one of each
    runs_each : of a visitor, running and waiting
    runs_address : of all visitors from one network address, running and waiting
    proxies : addresses of the proxies that say in X-Forwarded-For where a visitor comes from
    memory_gb, minutes : of a run
    keep_days : how long a visitor is kept who does not come again
    """

    models: tuple[Path, ...] = ()
    hub: bool = False
    upload_mb: float = 100
    uploads_mb: float = 1_000
    disk_gb: float = 10
    disk_all_gb: float = 100
    runs_at_once: int = 1
    runs_each: int = 5
    runs_address: int = 20
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    memory_gb: float = 8
    minutes: float = 60
    keep_days: float = 30


def shared() -> Shared | None:
    """Limits and permissions of this server; None where it is one user's own.

    Raises
    ------
    InputError
        The file that `MLEM_SHARED` names cannot be read, or says what cannot be.
    """
    named = os.environ.get(VARIABLE)
    return _read(named) if named else None


@functools.lru_cache(maxsize=4)
def _read(named: str) -> Shared:
    path = Path(named)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise InputError(
            f"{VARIABLE} names {named!r}, which cannot be read as TOML ({problem}); expected a "
            "file as docs/security.md shows it."
        ) from error
    try:
        return _checked(found, path.absolute().parent)
    except InputError as error:
        raise InputError(f"the settings in {named!r}: {error}") from error


def _checked(found: Mapping[str, Any], home: Path) -> Shared:
    """Settings as found in a file of the folder `home`; raises `InputError`."""
    known = {field.name: field.default for field in fields(Shared)}
    chosen: dict[str, Any] = {}
    for name, value in found.items():
        check_choice("setting", name, known)
        if name == "models":
            chosen[name] = _folders(value, home)
        elif name == "proxies":
            chosen[name] = _networks(value)
        elif name == "hub":
            if not isinstance(value, bool):
                raise InputError(f"found hub = {value!r}; expected true or false.")
            chosen[name] = value
        else:
            whole = isinstance(known[name], int) and name.startswith("runs")
            chosen[name] = _positive(name, value, whole)
    return replace(Shared(), **chosen)


def _folders(value: Any, home: Path) -> tuple[Path, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InputError(f"found models = {value!r}; expected a list of folders.")
    folders = tuple(home / Path(one).expanduser() for one in value)
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {str(folder)!r}, which models names.")
    return folders


def _networks(value: Any) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(str(one))) for one in [*value])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"found proxies = {value!r}; expected a list of addresses or networks, such as "
            '["127.0.0.1", "10.0.0.0/8"].'
        ) from error


def _positive(name: str, value: Any, whole: bool) -> float:
    expected = "a whole number, at least 1" if whole else "a number above 0"
    allowed = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not allowed or not math.isfinite(value) or value <= 0:
        raise InputError(f"found {name} = {value!r}; expected {expected}.")
    number: float = value
    return number
