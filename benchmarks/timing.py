"""Timing of calls, and the table that a section of the benchmark fills."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# What a row should reach is printed, and not written.
HEADER = ("what", "ours", "compared with", "ratio")


def seconds(call: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(first: Callable[[], object], second: Callable[[], object], runs: int) -> list[float]:
    """Medians of two calls, run in turn so that a slower minute hurts both."""
    times = [(seconds(first), seconds(second)) for _ in range(runs)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def printed_numbers(module: str, *arguments: object) -> list[float]:
    """The numbers that `python -m module arguments` prints, in a process of its own."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(part) for part in text.split()]


@dataclass
class Table:
    """Rows of one section, printed as they come."""

    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, what: str, ours: str, other: str = "", ratio: str = "", target: str = "") -> None:
        self.rows.append((what, ours, other, ratio, target))
        print(" | ".join(self.rows[-1]), flush=True)

    def write(self, path: Path, heading: str) -> None:
        """As Markdown: on what it was measured, then the rows."""
        lines = [
            heading,
            "",
            "| " + " | ".join(HEADER) + " |",
            "| " + " | ".join("---" for _ in HEADER) + " |",
            *("| " + " | ".join(row[: len(HEADER)]) + " |" for row in self.rows),
            "",
        ]
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
