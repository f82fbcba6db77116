"""Make the images of docs/gallery.md from the code that stands there.

.venv/bin/python scripts/gallery.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gallery.md"
# Enough for a screen; half of what goes into print.
WIDTH_MM, DPI = 183, 110
_PARTS = re.compile(r"^!\[[^]]*\]\((?P<image>[^)]+)\)|^```python\n(?P<code>.*?)^```", re.M | re.S)


def drawn() -> Iterator[tuple[Path, go.Figure]]:
    """Run the page's code from top to bottom: the file of each image, and its figure."""
    names: dict[str, object] = {}
    image = None
    for part in _PARTS.finditer(PAGE.read_text(encoding="utf-8")):
        if part["image"]:
            image = PAGE.parent / part["image"]
            continue
        exec(compile(part["code"], str(PAGE), "exec"), names)
        figure = names.pop("figure", None)
        if image is not None:
            assert isinstance(figure, go.Figure), f"no figure for {image.name}"
            yield image, figure
            image = None


def main() -> None:
    from mlem_core.figures.export import as_file, one_browser
    from mlem_core.figures.print_layout import Paper

    paper = Paper(width_mm=WIDTH_MM, dpi=DPI)
    with one_browser():
        for path, figure in drawn():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(as_file(figure, "png", paper))
            print(path.name)


if __name__ == "__main__":
    main()
