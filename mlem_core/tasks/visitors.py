"""The visitors of a shared server: a store for each, and an analysis that one shows to others.

A visitor is who has a token, a secret that the server has given and the browser keeps. The store
of a visitor lies under the token's digest, so that what is on the disk lets nobody in; whatever
works on a store therefore has the jobs, uploads, notes and deleted analyses of one visitor before
it, and of no other.

    visitors/DIGEST/          a store
        seen                  an empty file: when the visitor was last here
        address               stands for the network address that the visitor was last here from
        shared/ID.json        the secret of a link to an analysis
    links/DIGEST.json         whose analysis a link is to
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
from collections.abc import Iterator
from pathlib import Path

import filelock

from mlem_core.analysis.spec import AnalysisSpec, elsewhere
from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json, replacing, write_json
from mlem_core.base.room import VISITORS
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, limits
from mlem_core.tasks.runner import under_way

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
TOKEN = re.compile(rf"{_SECRET.pattern}\.{_SECRET.pattern}")
_BYTES = 32  # of the secret by which a server signs
DAY = 86400.0
_GONE = "this link is to no analysis (any more); ask who sent it to you for another one."


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


def _new_secret() -> str:
    """A secret of 256 bits, as a cookie or an address can hold it."""
    return secrets.token_urlsafe(32)


def new_token(root: Path) -> str:
    """The token of a new visitor: a secret, and the signature of the server of that store."""
    secret = _new_secret()
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
    return root / VISITORS / _digest(token)


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


def share(job_id: str, store: Store) -> str:
    """The secret of a link that shows an analysis to whoever has it; the same one each time.

    Parameters
    ----------
    store : of the visitor whose analysis it is

    Raises
    ------
    InputError
        There is no such analysis, or it is not done.
    """
    job = analyses.find(job_id, store)
    if job is None or not job.result.is_dir():
        raise InputError("only an analysis that is done can be shown to others.")
    secret = shared_as(job_id, store) or _new_secret()
    kept = _secret_of(job_id, store)
    kept.parent.mkdir(exist_ok=True)
    link = _link(secret, store.root.parent.parent)
    link.parent.mkdir(exist_ok=True)
    write_json(link, {"visitor": store.root.name, "analysis": job_id})
    write_json(kept, {"secret": secret})
    return secret


def shared_as(job_id: str, store: Store) -> str:
    """The secret of the link to an analysis; empty where there is none."""
    return str(read_json(_secret_of(job_id, store)).get("secret", ""))


def _secret_of(job_id: str, store: Store) -> Path:
    """The file with the secret of the link to an analysis, if it has one."""
    return store.root / "shared" / f"{job_id}.json"


def unshare(job_id: str, store: Store) -> None:
    """Have the link to an analysis show nothing any more; copies that others have stay theirs."""
    secret = shared_as(job_id, store)
    if secret:
        _link(secret, store.root.parent.parent).unlink(missing_ok=True)
        _secret_of(job_id, store).unlink(missing_ok=True)


def take(secret: str, store: Store) -> str:
    """Take an analysis that somebody shows by a link; its id.

    The visitor gets a copy of it with the files that it is about, and none of its owner's notes.

    Parameters
    ----------
    store : of the visitor who has the link

    Raises
    ------
    InputError
        The link is to nothing: never was, was taken back, or the analysis was deleted; or the disk
        that visitors may fill is full.
    """
    root = store.root.parent.parent
    about = read_json(_link(secret, root)) if _SECRET.fullmatch(secret) else {}
    if not about:
        raise InputError(_GONE)
    owner, job_id = root / VISITORS / str(about["visitor"]), str(about["analysis"])
    source, target = owner / "jobs" / job_id, store.root / "jobs" / job_id
    if owner == store.root or (target / "result").is_dir():
        return job_id
    limits.check_room(store.root)
    try:
        spec = AnalysisSpec.from_dict(read_json(source / "spec.json", strict=True))
        target.parent.mkdir(exist_ok=True)
        with _aside(store.root, f"taken-{job_id}") as aside:
            if (target / "result").is_dir():
                return job_id
            copy = aside / job_id
            copy.mkdir()
            shutil.copytree(source / "result", copy / "result")
            write_json(copy / "spec.json", _own_files(spec, owner, store.root, aside).to_dict())
            shutil.rmtree(target, ignore_errors=True)  # one that failed or was cancelled
            copy.rename(target)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(_GONE) from error
    return job_id


@contextlib.contextmanager
def _aside(root: Path, name: str) -> Iterator[Path]:
    """A folder that goes in the end; where the process is killed, as soon as the store is opened.

    One process at a time has the one of that name.
    """
    with (
        filelock.FileLock(root / "locks" / f"{name}.lock"),
        tempfile.TemporaryDirectory(prefix=f"{name}.", dir=root / "unfinished") as temporary,
    ):
        yield Path(temporary)


def _own_files(spec: AnalysisSpec, owner: Path, root: Path, aside: Path) -> AnalysisSpec:
    """The spec with the uploads of its owner as uploads of the store at `root`.

    Parameters
    ----------
    aside : where they are copied first
    """

    def as_own(path: str) -> str:
        source = Path(path)
        if not source.is_relative_to(owner / "uploads"):
            return path
        target = root / source.relative_to(owner)
        if not target.exists() and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            whole = aside / target.parent.name
            whole.mkdir(exist_ok=True)
            Path(copy(source, whole / source.name)).rename(target)
        return str(target)

    return elsewhere(spec, as_own)


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
    """Remove what visitors have left who were not here for so many days, and links to nothing.

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
    for link in (root / "links").glob("*.json"):
        about = read_json(link)
        job = root / VISITORS / str(about.get("visitor")) / "jobs" / str(about.get("analysis"))
        # An analysis that was deleted can come back, and with it the link.
        if not job.is_dir() and not any((job.parent.parent / "trash").glob(f"{job.name}-*")):
            link.unlink(missing_ok=True)


def _link(secret: str, root: Path) -> Path:
    return root / "links" / f"{_digest(secret)}.json"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()[:40]
