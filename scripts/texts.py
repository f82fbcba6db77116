"""Forbidden phrases in texts for readers; `make lint` runs this (`python scripts/texts.py`).

Texts are Markdown pages, the notebook's cells, and all strings of the program, docstrings among
them.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHRASES = (
    "makes of",
    "of which",
    "so much",
    "is said",
    "are said",
    "what is there",
    "as it is made",
    "that are else",
    "of it is not",
    "by whether",
    "told apart",
    "in the house",
    "at will",
    "mended",
    "asked",
)
PAGES = (
    "*.md",
    "docs/**/*.md",
    "docs/*.ipynb",
    "benchmarks/**/*.md",
    "training/*.md",
    "examples/**/*.md",
)
SOURCES = ("app.py", "mlem_core/**/*.py", "pages/**/*.py")
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
_NAME = re.compile(r"`[^`\n]*`")


def forbidden(text: str) -> Iterator[tuple[int, str]]:
    """Each forbidden phrase of a text with its line, from 0; names in backticks are no text."""
    text = _NAME.sub(lambda name: "`" * len(name[0]), text)
    for phrase in _PHRASE.finditer(text):
        yield text.count("\n", 0, phrase.start()), " ".join(phrase[0].split())


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with its first line, from 1 (of a notebook: with its cell)."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(content)["cells"], 1):
            yield number, "".join(cell["source"])
    else:
        yield 1, content


def problems(root: Path = ROOT) -> list[str]:
    """`path:line: phrase` for each forbidden phrase below a folder."""
    paths = sorted({path for glob in (*PAGES, *SOURCES) for path in root.glob(glob)})
    return [
        f"{path.relative_to(root)}:{first + line}: {phrase!r}"
        for path in paths
        for first, text in texts(path)
        for line, phrase in forbidden(text)
    ]


if __name__ == "__main__":
    found = problems()
    print(
        "\n".join([*found, f"{len(found)} phrases to reword"]) if found else "No forbidden phrase."
    )
    sys.exit(bool(found))
