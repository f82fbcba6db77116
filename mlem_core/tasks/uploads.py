"""Uploaded files that are one source together: kept under their content."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from mlem_core.storage.files import replacing_files
from mlem_core.storage.store import Store
from mlem_core.tasks.analyses import keep_upload


def keep(files: Sequence[tuple[str, bytes]], store: Store) -> Path:
    """Keep an uploaded file, or several as a folder; the same files give the same path.

    Parameters
    ----------
    files : name and content of each, at least one
    """
    if len(files) == 1:
        name, data = files[0]
        return keep_upload(data, name, store)
    paths = {keep_upload(data, name, store) for name, data in files}
    kept = sorted(paths, key=lambda path: (path.name, path))
    digest = hashlib.sha256("\n".join(map(str, (p.parent.name + p.name for p in kept))).encode())
    name = f"{kept[0].stem}_and_{len(kept) - 1}_more"
    folder = store.root / "uploads" / digest.hexdigest() / name
    if not folder.is_dir():
        same = len({path.name for path in kept}) < len(kept)
        names = [f"{number:03d}_" * same + path.name for number, path in enumerate(kept, start=1)]
        with replacing_files(folder, names[-1]) as whole:
            for name, path in zip(names, kept, strict=True):
                shutil.copyfile(path, whole / name)
    return folder
