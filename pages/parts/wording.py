"""How the screens put things into words: plain text, times, progress, layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlem_core.base.typing import Progress

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&])")


def plain(text: object) -> str:
    """Text as it is, for a place that would read it as Markdown."""
    return _MARKDOWN.sub(r"\\\1", " ".join(str(text).split()))


def duration(seconds: float) -> str:
    """A time in words: 40 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def progress_text(progress: Progress, seconds_left: float | None) -> str:
    """How far a stage of some work is, as Markdown."""
    of = f" of {Path(progress.model).name}" if progress.model else ""
    text = (
        f"{progress.stage[:1].upper()}{progress.stage[1:]}{of}: {progress.done:,} of "
        f"{progress.total:,} {progress.unit}"
    )
    if progress.done < progress.total and seconds_left is not None:
        text += f", about {duration(seconds_left)} left"
    return plain(text)
