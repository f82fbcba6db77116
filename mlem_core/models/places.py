"""Which folder or file the name of a model stands for, and which may be looked at at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mlem_core.base.errors import InputError
from mlem_core.base.shared import shared

_NAME = re.compile(r"\w[\w.-]*")


def place_of(name: str) -> Path | None:
    """The folder or file of a model that is on this machine under that name; None for neither.

    One's own machine is looked at wherever a name leads. On a shared server a model is named by
    its name in one of the folders of the settings, and no path is looked at.

    Raises
    ------
    InputError
        A path on a shared server; whether there is something at it makes no difference.
    """
    settings = shared()
    if settings is None:
        path = Path(os.path.expanduser(name))  # leaves an unknown user's home as it is
        return path if name.strip() and "\0" not in name and path.exists() else None
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or re.search(r"[\\\0:]", name):
        raise InputError(
            f"found {name!r} as a model, which is a path; on this server a model has a name: "
            "expected one of the list, or an id of the Hugging Face hub."
        )
    if not _NAME.fullmatch(name):
        return None
    paths = (folder / name for folder in settings.models)
    return next((path for path in paths if path.exists()), None)


def offered() -> list[str]:
    """The names of the models in the folders that a shared server's settings name."""
    settings = shared()
    if settings is None:
        return []
    found = {
        path.name
        for folder in settings.models
        for path in folder.iterdir()
        if _NAME.fullmatch(path.name) and (path.suffix == ".gguf" or _is_model(path))
    }
    return sorted(found)


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() or any(path.glob("*.gguf"))
