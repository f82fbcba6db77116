"""Zip archives: of members, which may be any, and their members."""

import io
import zipfile
from collections.abc import Mapping


def packed(members, how=zipfile.ZIP_STORED, note=b""):
    """An archive of members by name, or by names of which one may come twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = note
        for name, data in members.items() if isinstance(members, Mapping) else members:
            archive.writestr(name, data)
    return file.getvalue()


def contents(path):
    """What is in each member of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
