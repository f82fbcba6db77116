"""Files that appear whole or not at all, and temporary ones of one process, which go with it.

What is read back has one check: JSON has the form that the program gave it, or a sentence.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from mlem_core.base.errors import InputError
from mlem_core.base.text import short

_UNFINISHED = ".unfinished"
# What a process that was killed while files took their places has put in or taken out.
_BEGUN = ".unfinished.json"


@contextlib.contextmanager
def replacing(path: Path | str, *, private: bool = False, synced: bool = True) -> Iterator[Path]:
    """A file to write into, which takes the place of `path` when the block ends well.

    It is in the same folder, so that the change is one step and a reader never sees half a file.
    When the block raises, it is removed and what was at `path` stays; what a killed process has
    left is removed by the next that writes this file. A link stays one, and what it leads to is
    replaced.

    Parameters
    ----------
    path : the file to replace or to make; its folder must be there
    private : only its owner may read it; otherwise its permissions are those of any new file
    synced : it is on the disk, whatever happens to the machine, when the block has ended

    Raises OSError: the folder is not there or cannot be written, or `path` is no regular file but a
    folder or a device; the error names `path`.
    """
    named = Path(path)
    target = Path(os.path.realpath(named)) if named.is_symlink() else named
    _check_regular(target, named)
    with held(target.parent, target.name, 0o600 if private else 0o666, named) as temporary:
        yield temporary
        if synced:
            sync_path(temporary)
        os.replace(temporary, target)
        if synced:
            sync_path(target.parent)


@contextlib.contextmanager
def replacing_files(folder: Path | str, last: str, others: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write files into, which take their places in `folder` when the block ends well.

    A folder that is not there appears with all of them in one step. In one that is there, the files
    that are replaced (`last` before all others) are taken out before the first new one comes in
    (`last` at the end): what is killed leaves some files of one of both and no `last`, never some
    of each. Whatever else is in the folder stays as it is.

    Parameters
    ----------
    folder : made if it is not there
    last : the file that says that all of them are there
    others : names of further files that go with those that are replaced

    Raises OSError: it cannot be written, or is no folder; or a file's name is that of something
    else there. Nothing in it is changed then.
    """
    named = Path(folder)
    target = Path(os.path.realpath(named))
    inside = target.is_dir()
    if not inside and target.exists():
        code = errno.ENOTDIR
        raise NotADirectoryError(code, os.strerror(code), str(named))
    home, name = (target, _UNFINISHED) if inside else (target.parent, target.name)
    home.mkdir(parents=True, exist_ok=True)
    with held(home, name, 0o777, named, folder=True) as temporary:
        yield temporary
        names = sorted(path.name for path in temporary.iterdir())
        for each in names:
            sync_path(temporary / each)
        sync_path(temporary)
        if not inside and _renamed(temporary, target):
            sync_path(home)
            return
        with _only_one(target):
            moved = {last, *names, *others, *_begun(target)}
            for each in moved:
                _check_regular(target / each, named / each)
            (temporary / _BEGUN).write_text(json.dumps(sorted(moved)), encoding="utf-8")
            sync_path(temporary / _BEGUN)
            os.replace(temporary / _BEGUN, target / _BEGUN)
            sync_path(target)
            try:
                _exchange(temporary, target, last, moved)
            except KeyboardInterrupt:
                _exchange(temporary, target, last, ())  # it takes no time: not left half-way
                raise


def _renamed(temporary: Path, target: Path) -> bool:
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False  # another process has made it meanwhile
    return True


def _begun(target: Path) -> list[str]:
    try:
        names = json.loads((target / _BEGUN).read_bytes())
        return [name for name in names if name == Path(name).name and (target / name).is_file()]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _exchange(temporary: Path, target: Path, last: str, old: Iterable[str]) -> None:
    for name in (last, *old) if old else ():
        (target / name).unlink(missing_ok=True)
    new = [path.name for path in temporary.iterdir()]
    for name in sorted(new, key=lambda entry: (entry == last, entry)):
        os.replace(temporary / name, target / name)
    sync_path(target)
    (target / _BEGUN).unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Have a file's content, or the names in a folder, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Not every file system can; what it says of the disk is heeded.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no room, or no leave, for more bytes."""
    if error.errno is None:  # NumPy says only how many bytes it could write
        return " requested and " in str(error)
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_target(path: str, kind: str) -> None:
    """Raise InputError where nothing can be written at a path, before any work is done.

    `kind` is "file" or "folder"; one that is not there can be made.
    """
    if not path:
        raise InputError(f"the name of the {kind} to write is empty; give it one.")
    is_one = os.path.isdir if kind == "folder" else os.path.isfile
    if os.path.lexists(path) and os.path.exists(path) and not is_one(path):
        what = _kind(Path(path))
        raise InputError(f"{path!r} is {what}; expected a {kind}, or a name where nothing is yet.")


def _kind(path: Path) -> str:
    mode = path.stat().st_mode
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a pipe"))
    return next((text for test, text in kinds if test(mode)), "a device")


def _check_regular(target: Path, named: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(named))
    if target.exists() and not target.is_file():
        reason = f"is {_kind(target)}, and only a file is replaced"
        raise FileExistsError(errno.EEXIST, reason, str(named))


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a folder for one process at a time; the others wait for the moment that it takes."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def read_json(path: Path, *, strict: bool = False) -> dict[str, Any]:
    """A JSON object; {} where there is none, or an error if `strict`."""
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"{path} holds no JSON object")
        return content
    except (OSError, ValueError):
        if strict:
            raise
        return {}


def write_json(path: Path, value: dict[str, Any], *, synced: bool = True) -> None:
    """Write JSON, whole or not at all; `synced` as of `replacing`."""
    with replacing(path, private=True, synced=synced) as temporary:
        temporary.write_bytes(json.dumps(value).encode())


_RANDOM = 4  # bytes in the name


@contextlib.contextmanager
def held(home: Path, name: str, mode: int, named: Path, folder: bool = False) -> Iterator[Path]:
    """A new file, or a folder, under a lock that ends with this process.

    What killed processes have left of it is removed before.

    Raises OSError: it cannot be made or written; the error names `named`.
    """
    sweep(home, name)
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
    except OSError as error:
        # The name that is not known outside says nothing to a user; a write error has none.
        at = "" if error.filename is None else str(error.filename)
        if at == str(path) or at.startswith(f"{path}{os.sep}"):
            error.filename, error.filename2 = str(named), None
        elif not at and is_full(error):
            error.filename = str(named)
        raise
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
    home, prefix = Path(tempfile.gettempdir()), f"mlem-{name}-{os.getuid()}"
    with held(home, prefix, 0o700, home / prefix, folder=True) as path:
        yield path


class ScratchFolder:
    """A folder of `scratch`, `path`, which is there as long as this object is."""

    def __init__(self, name: str):
        stack = contextlib.ExitStack()
        self.path = stack.enter_context(scratch(name))
        weakref.finalize(self, stack.close)


T = TypeVar("T")

# What is expected, by the kind of pydantic's error; its own words for the others.
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "missing": "it as the program wrote it",
    "string_type": "a text",
    "tuple_type": "a list",
}


def parsed(kind: type[T], data: bytes, what: str) -> T:
    """The value of a dataclass that a JSON document holds.

    Numbers, texts and lists are never taken for each other; entries that the dataclass does not
    have are left alone.

    Parameters
    ----------
    kind : the dataclass
    data : the document
    what : the document in a message, such as "the manifest of x.zip"

    Raises InputError: it is no JSON, or an entry is missing or of another form.
    """
    from pydantic import ValidationError

    try:
        content: T = _adapter(cast("Any", kind)).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise InputError(_sentence(what, dict(first))) from error
    return content


def checked(kind: type[T], value: Any, what: str) -> T:
    """Document that has been read, checked as `parsed` checks a file."""
    try:
        data = json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} is nothing that JSON can hold; expected an object.") from error
    return parsed(kind, data, what)


@functools.cache
def _adapter(kind: Any) -> Any:
    # A tenth of a second, which a command that reads nothing back does not take.
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _sentence(what: str, error: dict[str, Any]) -> str:
    if error["type"] == "json_invalid":
        reason = str(error["msg"]).removeprefix("Invalid JSON: ")
        return f"{what} is no JSON ({reason}); expected it as the program wrote it."
    place = ".".join(map(str, error["loc"]))
    where = f"the entry {short(place)} of {what}" if place else what
    words = str(error["msg"]).removeprefix("Input should be ")
    expected = _EXPECTED.get(error["type"], words)
    if error["type"] == "missing":
        return f"{where} is missing; expected {expected}."
    cell = short(json.dumps(error["input"], ensure_ascii=False))[1:-1]
    return f"{where} is {cell}; expected {expected}."
