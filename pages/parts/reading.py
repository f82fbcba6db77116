"""Uploaded files as the screens read them: once for a store, while the window is open."""

from __future__ import annotations

import json
from typing import Any

from mlem_core.base.errors import InputError
from pages.parts import stored, visitor


def read(what: str, **request: Any) -> Any:
    """As `mlem_core.tasks.reading.read`; what cannot be read is not tried again."""
    # An upload is named by its content.
    found = _read(what, json.dumps(request, sort_keys=True))
    if isinstance(found, InputError):
        raise InputError(str(found))
    return found


@stored.kept(16, show_spinner="Reading the file …")
def _read(what: str, request: str) -> Any:
    from mlem_core.tasks import reading

    try:
        with visitor.while_here():
            return reading.read(what, json.loads(request), stored.store().root)
    except reading.Broken:
        raise
    except InputError as error:
        return error
