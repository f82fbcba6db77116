"""Run docs/tutorial.ipynb from top to bottom; on its own, this keeps what it shows.

.venv/bin/python scripts/tutorial.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.ipynb"


def executed(folder: Path) -> Any:
    """The notebook with what it shows, run in a folder; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(PAGE, as_version=4)
    client = NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    for cell in notebook.cells:
        # When it ran, and what packages said on stderr, is this machine's.
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(folder)), PAGE)


if __name__ == "__main__":
    main()
