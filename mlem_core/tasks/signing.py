"""What only this server can have written: signed with a secret that its store keeps."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import secrets
from pathlib import Path

import filelock

from mlem_core.storage.files import replacing
from mlem_core.storage.store import Store

_BYTES = 32


def signature(text: str, root: Path) -> str:
    """The server's signature of a text: 43 letters, digits, - and _.

    Parameters
    ----------
    root : of the server's store; the secret is made there when first used

    Raises
    ------
    InputError
        The store cannot be written, and has no secret yet.
    """
    signed = hmac.digest(_secret(root), text.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")


@functools.lru_cache(maxsize=8)
def _secret(root: Path) -> bytes:
    """The secret of a store, the same after a restart; one that is damaged is replaced."""
    path = root / "server.key"
    found = _read(path)
    if len(found) != _BYTES:
        Store(root).check_writable()
        with filelock.FileLock(root / "locks" / "server.key.lock"):
            found = _read(path)  # another process may have made it meanwhile
            if len(found) != _BYTES:
                found = secrets.token_bytes(_BYTES)
                with replacing(path, private=True) as temporary:
                    temporary.write_bytes(found)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
