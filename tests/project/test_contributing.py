"""What docs/contributing.md adds to the program works in a copy of it."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from inputs import words

from mlem_core.data.stimulus_csv import write_csv

ROOT = Path(__file__).resolve().parents[2]
DIFFS = re.findall(
    r"^```diff\n(.*?)^```$",
    (ROOT / "docs" / "contributing.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
FILES = {"estimator": 2, "distance": 1, "similarity": 1, "set": 1, "model": 1, "screen": 3}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with all diffs applied, and the set that one of them names."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("mlem_core", "pages"):
        # With what is compiled, which the copies of the files have the times for.
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("trio"))
    for diff in DIFFS:
        done = subprocess.run(
            ["git", "apply", "-"], input=diff, cwd=root, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr
    write_csv(words(), root / "colours.csv")
    packed = gzip.compress((root / "colours.csv").read_bytes(), mtime=0)
    (root / "mlem_core" / "data" / "sets" / "colours.csv.gz").write_bytes(packed)
    return root


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": str(root), "MLEM_CACHE": str(root / "cache")}
    paths["BROWSER_PATH"] = "/nowhere"  # a capsule has its figures as HTML then, at once
    return subprocess.run(
        [sys.executable, *arguments], cwd=root, env={**os.environ, **paths}, text=True,
        capture_output=True,
    )  # fmt: skip


def test_each_kind_of_thing_touches_as_few_files_as_it_says() -> None:
    counts = [len(re.findall(r"^diff --git ", diff, re.MULTILINE)) for diff in DIFFS]
    assert counts == list(FILES.values())


def test_what_is_added_runs_from_the_command_line(copy: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((len(words()), 4))
    np.savez(copy / "brain.npz", layer_00=rows)
    asked = ["--stimuli", "colours", "--representations", "brain=brain.npz", "--folds", "3"]
    asked += ["--estimator", "clipped", "--distance", "chebyshev"]
    asked += ["--similarities", "pearson"]
    made = ["--out", "out", "--capsule", "all.zip"]
    done = python(copy, "-m", "mlem_core", "analyze", *asked, *made)
    assert done.returncode == 0, done.stderr
    assert (copy / "out" / "scores.csv").exists()
    assert (copy / "out" / "similarity_pearson.csv").exists()
    verified = python(copy, "-m", "mlem_core", "verify", "all.zip")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    asked = ["--stimuli", "colours", "--model", "tiny-bert", "--out", "out2"]
    done = python(copy, "-m", "mlem_core", "analyze", *asked)
    assert done.returncode == 2 and "tiny_bert_package" in done.stderr


def test_the_added_screen_draws_the_example(copy: Path) -> None:
    code = """
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("pages/best_page.py", default_timeout=120).run()
assert not app.exception and not app.error, [one.value for one in (*app.exception, *app.error)]
print([one.value for one in app.title], len(app.get("plotly_chart")))
"""
    done = python(copy, "-c", code)
    assert done.stdout.strip().splitlines()[-1:] == ["['Best layers'] 1"], done.stderr[-2000:]
