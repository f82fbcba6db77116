"""Lists, counts, numbers and spans as sentences have them; how objects show themselves."""

from __future__ import annotations

import html
import importlib
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

# What Markdown reads as more than text; an underscore inside a word is none.
_MARKED = re.compile(r"[\\`*<>\[\]$|~]|(?<!\w)_|_(?!\w)")
# A hyphen that is the sign of a number or of its exponent, not a part of a name.
_SIGN = re.compile(r"(?<![\w-])-(?=[\d.])|(?<=\de)-(?=\d)")
_NOTHING = re.compile(r"(?<![\w-])-(?=0(?:\.0*)?(?![\d.e]))")

# Kruskal's words for the stress of a map (1964).
_STRESS = ((0.0, "perfect"), (0.025, "excellent"), (0.05, "good"), (0.1, "fair"), (0.2, "poor"))


def listed(parts: Sequence[str], *, last: str = "and", most: int | None = None) -> str:
    """ "a, b and c"; of more than `most`, "a, b and 7 more"."""
    texts = list(parts)
    if most is not None and len(texts) > most:
        return f"{', '.join(texts[:most])} {last} {len(texts) - most} more"
    return f" {last} ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def sentence_case(text: str) -> str:
    """Text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def short(text: str, length: int = 60) -> str:
    """Text quoted for a message, cut where it is long."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def visible(text: str) -> str:
    """The text with control and format characters as Python writes them (`\\x1b`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(char)[1:-1] if unicodedata.category(char).startswith("C") else char for char in text
    )


def as_markdown(text: str) -> str:
    """Text on one line that Markdown shows as it is: no HTML, link, picture or formula."""
    return _MARKED.sub(r"\\\g<0>", " ".join(text.split()))


def some(names: Sequence[str], most: int = 20) -> str:
    """Names quoted for a message, cut where there are many."""
    text = ", ".join(short(name) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def plural(noun: str) -> str:
    """ "rows", "stimuli"."""
    return f"{noun[:-2]}i" if noun.endswith("stimulus") else f"{noun}s"


def many(n: int, noun: str) -> str:
    """ "1 row", "2,000 rows"."""
    return f"{n:,} {noun if n == 1 else plural(noun)}"


def pair_count(n_pairs: int, n_stimuli: int) -> str:
    """Number of pairs of stimuli, and of all pairs where some were left out."""
    every = n_stimuli * (n_stimuli - 1) // 2
    return f"{n_pairs:,} pairs" if n_pairs >= every else f"{n_pairs:,} of {every:,} pairs"


def span(numbers: Sequence[int], least: int = 3) -> str:
    """Ascending whole numbers: "0 to 6" where at least so many follow each other, else each."""
    if len(numbers) >= least and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return listed([str(number) for number in numbers])


def minus(text: str) -> str:
    """The text with true minus signs before its numbers, and none before 0; hyphens in names
    stay."""
    return _SIGN.sub("−", _NOTHING.sub("", text))


def number(value: float, digits: int = 2) -> str:
    """Text of a number with so many decimals and a true minus sign; never "−0.00"."""
    # Adding 0 makes a rounded -0.0 a plain 0.
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def fraction(value: float, digits: int = 2) -> str:
    """A correlation as text, with no 0 before the point: ".77", "−.05", "1.00"."""
    return number(value, digits).replace("0.", ".", 1) if abs(value) < 1 else number(value, digits)


def with_ends(value: float, low: float, high: float) -> str:
    """A correlation with the ends of its interval, where there is one: ".77 (.70 to .81)"."""
    return fraction(value) + f" ({fraction(low)} to {fraction(high)})" * (not math.isnan(low))


def duration(seconds: float) -> str:
    """Time in words: 40 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def percent(share: float, digits: int = 0) -> str:
    """A share as text: "94 %", "−5 %"."""
    return f"{number(100 * share, digits)} %"


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Percentages, as whole numbers that add up to 100, of shares that add up to 1.

    Each is rounded down, and those with the largest remainders go up by 1 (Hamilton's method,
    Balinski and Young 1982).
    """
    exact = [100 * share for share in shares]
    percents = list(map(math.floor, exact))
    by_remainder = sorted(range(len(exact)), key=lambda at: percents[at] - exact[at])
    for at in by_remainder[: max(0, 100 - sum(percents))]:
        percents[at] += 1
    return percents


def number_word(n: int) -> str:
    """A whole number as a word up to twelve, else in digits."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    words += ["eleven", "twelve"]
    return words[n] if n < len(words) else f"{n:,}"


def stress_in_words(stress: float) -> str:
    """The stress of a map with the nearest of Kruskal's words, "stress .12 (fair)".

    Empty where it is not known.
    """
    if math.isnan(stress):
        return ""
    word = min(_STRESS, key=lambda entry: abs(entry[0] - stress))[1]
    return f"stress {fraction(stress)} ({word})"


# A name and what there is of it.
Lines = Sequence[tuple[str, str]]


def as_lines(title: str, lines: Lines) -> str:
    """The title, and below it the lines with their names aligned."""
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join((title, *(f"  {name:<{width}}  {text}" for name, text in lines)))


def as_html(title: str, lines: Lines, table: Any = None) -> str:
    """HTML of a title, lines and a table for a notebook; no user's text becomes markup.

    `table` is a DataFrame that is shown below.
    """
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in lines
    )
    parts = [f"<p><b>{html.escape(title)}</b></p>", f"<table>{rows}</table>" if rows else ""]
    if table is not None:
        parts.append(table.to_html(index=False, border=0, float_format=lambda v: number(v, 3)))
    return f"<div>{''.join(parts)}</div>"


class Later:
    """An attribute that is made of its owner by a class of another package, at its first use.

    `plot = Later("figures.plots", "AnalysisPlots")` gives `analysis.plot.profiles()` without the
    package of `analysis` knowing of figures: the name is resolved at run time, as the names of
    `mlem_core` are.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home = home
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        member = getattr(importlib.import_module(f"mlem_core.{self._home}"), self._name)
        return member if owner is None else member(owner)
