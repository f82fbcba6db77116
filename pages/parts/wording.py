"""Wording of the screens: plain text, times, progress, and numbers of tables."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mlem_core.base.room import default_root, shared
from mlem_core.base.text import sentence_case

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.base.typing import Progress

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&])")


def plain(text: object) -> str:
    """Text as it is, for a place that would read it as Markdown.

    On a shared server paths of the machine are left out of it, all but the last part.
    """
    words = " ".join(str(text).split())
    if shared() is not None and "/" in words:
        words = _paths().sub(lambda found: found["last"] or "…", words)
    return _MARKDOWN.sub(r"\\\1", words)


@functools.lru_cache(maxsize=1)
def _paths() -> re.Pattern[str]:
    """Pattern of paths that begin with a folder of this machine that a message could name."""
    settings = shared()
    folders = {
        default_root(),
        Path(__file__).parents[2],
        Path.home(),
        Path(tempfile.gettempdir()),
        *map(Path, (sys.prefix, sys.base_prefix)),
        *(() if settings is None else settings.models),
    }
    both = {str(one) for folder in folders for one in (folder.absolute(), folder.resolve())}
    known = "|".join(re.escape(one) for one in sorted(both, key=len, reverse=True) if one != "/")
    return re.compile(
        rf"(?<![\w/])(?:{known})(?:/(?:[^\s/'\"]*/)*(?P<last>[^\s/'\"]*)|\b(?![\w/]))"
    )


def duration(seconds: float) -> str:
    """A time in words: 40 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def progress_text(progress: Progress, seconds_left: float | None) -> str:
    """Progress of a stage of a task, as Markdown."""
    of = f" of {Path(progress.model).name}" if progress.model else ""
    text = (
        f"{sentence_case(progress.stage)}{of}: {progress.done:,} of "
        f"{progress.total:,} {progress.unit}"
    )
    if progress.done < progress.total and seconds_left is not None:
        text += f", about {duration(seconds_left)} left"
    return plain(text)


def without_minus_zero(table: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """The table for a screen that shows so many digits: what would be shown as -0 is 0."""
    numbers = table.select_dtypes("float")
    shown_as_zero = (numbers < 0) & (numbers > -0.5 * 10.0**-digits)
    return table.assign(**{name: numbers[name].mask(shown_as_zero[name], 0.0) for name in numbers})
