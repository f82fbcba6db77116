"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path | str, *, private: bool = False) -> Iterator[Path]:
    """A file to write into, which takes the place of `path` when the block ends well.

    It is in the same folder, so that the change is one step and a reader never sees half a file.
    When the block raises, it is removed and what was at `path` stays.

    Parameters
    ----------
    path : the file to replace or to make; its folder must be there
    private : only its owner may read it; otherwise its permissions are those of any new file

    Raises OSError: the folder is not there or cannot be written; the error names `path`.
    """
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    # Made here, and only where there is nothing of this name, with the permissions it will keep.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        os.close(os.open(temporary, flags, 0o600 if private else 0o666))
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        if str(error.filename) == str(temporary):
            # The name that is not known outside says nothing to a user.
            error.filename, error.filename2 = str(target), None
        raise
