"""Folders that the program may write into: where a store is, and what is compiled."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]


def default_root() -> Path:
    """Where a store is when nobody says: the first that can be written of those below.

    $MLEM_CACHE (this one in any case), the project's `cache/`, the user's cache, and a folder of
    the user's among the temporary ones.

    Raises InputError: none of them can be written.
    """
    named = os.environ.get("MLEM_CACHE")
    if named:
        return Path(named)
    project = _PACKAGE.parent / "cache"
    if (project / ".gitignore").is_file() and os.access(project, os.W_OK):
        return project
    import platformdirs

    # Without a home there is no such folder: RuntimeError.
    with contextlib.suppress(RuntimeError):
        users = Path(platformdirs.user_cache_dir("mlem", appauthor=False))
        there = next(folder for folder in (users, *users.parents) if folder.exists())
        if os.access(there, os.W_OK):
            return users
    with contextlib.suppress(OSError):
        temporary = Path(tempfile.gettempdir()) / f"mlem-{os.getuid()}"
        if _writable(temporary) and _private(temporary):
            return temporary
    raise InputError(
        "no folder for the cache can be written, neither in the user's home nor among the "
        "temporary ones: name one in MLEM_CACHE."
    )


@functools.lru_cache(maxsize=1)
def keep_compiled() -> None:
    """Have numba keep what it compiles where it can: called before the first kernel is defined.

    By itself it keeps it in the package or in the home of the user, and raises where both are
    read-only, as in most containers.

    Raises InputError: neither the package, the store nor the temporary folder can be written.
    """
    import numba

    config: Any = numba.config
    kernels = _PACKAGE / "pairs" / "kernels" / "__pycache__"
    if config.CACHE_DIR or _writable(kernels):
        return
    temporary = Path(tempfile.gettempdir()) / f"mlem-{os.getuid()}"
    for root in (default_root().absolute(), temporary):
        folder = root / "compiled"
        # numba runs what it finds there, so nobody else may write it.
        if _writable(folder) and _private(folder):
            config.CACHE_DIR = str(folder)
            return
    raise InputError(
        f"compiled code can be kept neither in the cache folder {str(default_root())!r} nor in "
        f"{str(temporary)!r}: name a folder of your own that can be written in MLEM_CACHE."
    )


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private(folder: Path) -> bool:
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022
