"""The visitors of a shared server: a store for each.

A visitor is who has a token, a secret that the server has given and the browser keeps. The store
of a visitor lies under the token's digest, so that what is on the disk lets nobody in; whatever
works on a store therefore has the jobs, uploads, notes and deleted analyses of one visitor before
it, and of no other.

    visitors/DIGEST/          a store
        seen                  an empty file: when the visitor was last here
        address               stands for the network address that the visitor was last here from
    server.key                the secret by which the server signs tokens
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import itertools
import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import filelock

from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json, replacing
from mlem_core.base.room import VISITORS
from mlem_core.storage.store import Store
from mlem_core.tasks import limits
from mlem_core.tasks.runner import under_way

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
TOKEN = re.compile(rf"{_SECRET.pattern}\.{_SECRET.pattern}")
_BYTES = 32  # of a secret
DAY = 86400.0


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
    key = _read_key(path)
    if len(key) != _BYTES:
        Store(root).check_writable()
        with filelock.FileLock(root / "locks" / "server.key.lock"):
            key = _read_key(path)  # another process may have made it meanwhile
            if len(key) != _BYTES:
                key = secrets.token_bytes(_BYTES)
                with replacing(path, private=True) as temporary:
                    temporary.write_bytes(key)
    return key


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def new_token(root: Path) -> str:
    """The token of a new visitor: a secret, and the signature of the server of that store."""
    secret = secrets.token_urlsafe(_BYTES)
    return f"{secret}.{signature(secret, root)}"


def is_given(token: str, root: Path) -> bool:
    """Whether the server of that store has given a token: it is signed, or has a store already."""
    if not TOKEN.fullmatch(token):
        return False
    secret, _, signed = token.partition(".")
    return hmac.compare_digest(signed, signature(secret, root)) or _store(token, root).is_dir()


def store_of(token: str, root: Path, address: str = "") -> Store:
    """The store of a visitor, who is here now.

    Parameters
    ----------
    root : of the server's store
    address : the network address that the visitor comes from; empty where that is not known

    Raises
    ------
    InputError
        It is no token that this server has given; the store cannot be written.
    """
    if not is_given(token, root):
        raise InputError("the token of this visitor is none that this server has given.")
    store = Store(_store(token, root))
    store.check_writable()
    limits.arrive(store.root / "jobs")
    (store.root / "seen").touch()
    if address:
        # Signed: the disk does not say who was here.
        (store.root / limits.ADDRESS).write_text(signature(_network(address), root))
    return store


def _store(token: str, root: Path) -> Path:
    return root / VISITORS / hashlib.sha256(token.encode()).hexdigest()[:40]


def _network(address: str) -> str:
    """The network that counts as one address: of IPv6 the half that a household is given."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped or ipaddress.ip_network((parsed, 64), strict=False))


def purge_uploads(store: Store, days: float) -> None:
    """Remove uploads that no analysis is of, and that were uploaded more than so many days ago.

    Those of an analysis in the trash stay until it is gone for good.
    """
    specs = [*(store.root / "jobs").glob("*/spec.json"), *store.root.glob("trash/*/job/spec.json")]
    named: set[str] = set()
    for path in specs:
        spec = read_json(path)
        named_files = (dict(spec.get(name) or ()).values() for name in ("representations", "rdms"))
        files = [spec.get("stimuli"), *itertools.chain(*named_files)]
        named |= {Path(str(file)).parent.name for file in files}
    for folder in (store.root / "uploads").glob("*"):
        with contextlib.suppress(OSError):
            if folder.name not in named and folder.stat().st_mtime < time.time() - days * DAY:
                shutil.rmtree(folder, ignore_errors=True)


def forget_visitors(root: Path, days: float) -> None:
    """Remove what visitors have left who were not here for so many days.

    A visitor who has kept nothing is forgotten after a day; one whose runs go on is kept.
    """
    now = time.time()
    for folder in (root / VISITORS).glob("*/"):
        with contextlib.suppress(OSError):
            away = now - (folder / "seen").stat().st_mtime
            has = any(any((folder / name).glob("*/")) for name in ("jobs", "uploads", "trash"))
            if away > (days if has else 1) * DAY and not under_way(folder / "jobs"):
                # Renamed first: nobody finds half of it.
                grave = Path(tempfile.mkdtemp(prefix="visitor.", dir=root / "unfinished"))
                folder.rename(grave / folder.name)
                shutil.rmtree(grave, ignore_errors=True)
