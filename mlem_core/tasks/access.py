"""Whether this server changes anything, or only shows the analyses that are finished."""

from __future__ import annotations

import os

from mlem_core.base.errors import InputError

VARIABLE = "MLEM_VIEW_ONLY"


def view_only() -> bool:
    """Whether this server only shows finished analyses."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def check_changes_allowed() -> None:
    """Raise `InputError` on a server that only shows finished analyses."""
    if view_only():
        raise InputError(
            "this server only shows finished analyses: nothing can be uploaded, run, renamed or "
            "deleted here."
        )
