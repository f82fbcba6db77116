"""Temporary files and folders of one process, which the next one removes where that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_RANDOM = 4  # bytes in the name


@contextlib.contextmanager
def held(home: Path, name: str, mode: int, named: Path, folder: bool = False) -> Iterator[Path]:
    """A new file, or a folder, under a lock that ends with this process.

    Raises OSError: it cannot be made; the error names `named`.
    """
    while True:
        path = home / f".{name.lstrip('.')}.{secrets.token_hex(_RANDOM)}"
        # Made here, and only where there is nothing of this name, with the permissions it keeps.
        try:
            if folder:
                path.mkdir(mode)
                opened = os.open(path, os.O_RDONLY)
            else:
                opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        except OSError as error:
            error.filename = str(named)
            raise
        with contextlib.suppress(OSError):  # where nothing can be locked, nothing is swept
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():
            break
        os.close(opened)  # another process took it for a dead one's before it was locked
    try:
        yield path
    finally:
        if folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        os.close(opened)


def sweep(home: Path, name: str) -> None:
    """Remove what killed processes have left of a file or folder."""
    pattern = re.compile(rf"\.{re.escape(name.lstrip('.'))}\.[0-9a-f]{{{2 * _RANDOM}}}")
    with contextlib.suppress(OSError):
        for path in [each for each in os.scandir(home) if pattern.fullmatch(each.name)]:
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)
            except OSError:
                continue  # its process is at it
            finally:
                os.close(opened)


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A private temporary folder; what a killed process left of it is removed by the next one."""
    home, own = Path(tempfile.gettempdir()), f"mlem-{name}-{os.getuid()}"
    sweep(home, own)
    with held(home, own, 0o700, home / own, folder=True) as path:
        yield path
