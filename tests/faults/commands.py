"""Commands as a user starts them, on a file that stands for a model, where something is amiss."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from inputs import in_files, noise, words

ROOT = Path(__file__).resolve().parents[2]
# For a script of the tests that is a process of its own.
SCRIPTED = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def inputs_in(folder: Path) -> list[str]:
    """Write 46 words and two layers there; the options that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    table = words(12)
    in_files(folder, table, {"m": noise(len(table))})
    files = ["--stimuli", str(folder / "words.csv"), "--representations", f"m={folder / 'm.npz'}"]
    return [*files, "--folds", "3"]


def command(
    arguments: Sequence[str | bytes],
    folder: Path,
    package: Path = ROOT,
    before: Callable[[], None] | None = None,
    through: Sequence[str] = (),
    **environment: str,
) -> subprocess.CompletedProcess[bytes]:
    """`python -m mlem_core ARGUMENTS` in a folder, with nothing in the environment but this.

    `through` is a command that starts another one.
    """
    # Python itself leaves half of a compiled module where the disk is full, and trusts it.
    least = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*through, sys.executable, "-m", "mlem_core", *arguments],
        cwd=folder,
        env={**least, **environment},
        capture_output=True,
        preexec_fn=before,
        check=False,
        timeout=250,
    )


def contents(folder: Path) -> Mapping[str, bytes]:
    """All files below a folder, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
