"""Files of representations: added, checked against the stimuli, taken away."""

from __future__ import annotations

from typing import Any

from pages.form.draft import Draft
from pages.parts import choices, stored


def chosen() -> list[tuple[str, str]]:
    """Name and upload of each file."""
    found = (one.partition("=") for one in choices.get("files") or [])
    return [(name, upload) for name, equals, upload in found if equals]


def keep(file: Any) -> str:
    """Keep an uploaded file; how the URL names it."""
    from mlem_core.tasks import analyses

    return stored.upload_name(analyses.keep_upload(file.getvalue(), file.name, stored.store()))


def show(draft: Draft) -> None:
    """Draw what is added, and what takes more."""
