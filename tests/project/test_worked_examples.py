"""What the docs have code for runs: the diffs, the gallery, the tutorial, the digits."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery
import numpy as np
import pandas as pd
import pytest
import tutorial
from inputs import words

from mlem_core.data.stimulus_csv import write_csv

ROOT = Path(__file__).resolve().parents[2]

# --- what docs/contributing.md adds to the program, in a copy of it --------------------------

DIFFS = re.findall(
    r"^```diff\n(.*?)^```$",
    (ROOT / "docs" / "contributing.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
FILES = {"estimator": 2, "distance": 1, "similarity": 1, "set": 1, "model": 1, "screen": 3}
ADDED = """
import os, sys
from mlem_core.cli.commands import main
from streamlit.testing.v1 import AppTest
files = "--stimuli colours --representations brain=brain.npz --folds 3"
choices = "--estimator clipped --distance chebyshev --similarities pearson"
asked = f"analyze {files} {choices} --out out --capsule all.zip"
assert main(asked.split()) == 0
assert main(["verify", "all.zip"]) == 0
assert main("analyze --stimuli colours --model tiny-bert --out out2".split()) == 2
app = AppTest.from_file("pages/best_page.py", default_timeout=120).run()
assert not app.exception and not app.error, [one.value for one in (*app.exception, *app.error)]
print([one.value for one in app.title], len(app.get("plotly_chart")))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with all diffs applied."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("mlem_core", "pages"):
        # With what is compiled, which the copies of the files have the times for.
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("trio"))
    for diff in DIFFS:
        done = subprocess.run(
            ["git", "apply", "-"], input=diff, cwd=root, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr
    return root


def test_each_kind_of_thing_touches_as_few_files_as_it_says(copy: Path) -> None:
    counts = [len(re.findall(r"^diff --git ", diff, re.MULTILINE)) for diff in DIFFS]
    assert counts == list(FILES.values())


def test_what_the_diffs_add_runs_from_the_command_line_and_in_the_app(copy: Path) -> None:
    write_csv(words(), copy / "colours.csv")
    packed = gzip.compress((copy / "colours.csv").read_bytes(), mtime=0)
    (copy / "mlem_core" / "data" / "sets" / "colours.csv.gz").write_bytes(packed)
    rows = np.random.default_rng(0).standard_normal((len(words()), 4))
    np.savez(copy / "brain.npz", layer_00=rows)
    paths = {"PYTHONPATH": str(copy), "MLEM_CACHE": str(copy / "cache")}
    paths["BROWSER_PATH"] = "/nowhere"  # a capsule has its figures as HTML then, at once
    done = subprocess.run(
        [sys.executable, "-c", ADDED],
        cwd=copy,
        env={**os.environ, **paths},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['Best layers'] 1"
    assert "tiny_bert_package" in done.stderr
    assert {"scores.csv", "similarity_pearson.csv"} <= {p.name for p in (copy / "out").iterdir()}


# --- the gallery and the tutorial -----------------------------------------------------------


@pytest.mark.slow
def test_the_code_of_the_gallery_draws_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    drawn = dict(gallery.drawn())
    assert all(len(figure.data) for figure in drawn.values())
    images = ROOT / "docs" / "images" / "gallery"
    assert set(drawn) == set(images.glob("*.png")) and len(drawn) >= 13


@pytest.mark.slow
def test_the_tutorial_runs_and_says_what_it_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chromium_path: str
) -> None:
    import nbformat

    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "work").mkdir()
    new, kept = tutorial.executed(tmp_path / "work"), nbformat.read(tutorial.PAGE, as_version=4)
    written = {path.name for path in (tmp_path / "work").iterdir()}
    assert {"my.csv", "profiles.pdf", "why.pdf", "tables"} <= written

    def shown(notebook: nbformat.NotebookNode) -> list[str]:
        """Its words, which are the same on every machine; the last digits of numbers need not."""
        outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
        texts = [one.get("text") or one["data"]["text/plain"] for one in outputs]
        return re.sub(r"[-−]?[\d.]+|\s+", " ", "\n".join(texts)).split()

    assert shown(new) == shown(kept) and len(shown(new)) > 100


# --- the digits -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    """The module of the example."""
    path = ROOT / "examples" / "digits" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_digits_end_in_files_where_training_makes_the_digit_matter_and_the_slant_not(
    digits, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["digits.py", "--out", str(out), "--images", "250"])
    digits.main()
    assert "unseen images rightly" in capsys.readouterr().out
    tables = "folds importance layer_map scores similarity_profiles similarity_rsa weights digits"
    figures = "profiles similarity layer_map images_0 images_2"
    assert {path.name for path in out.iterdir()} == {
        *(f"{name}.csv" for name in tables.split()),
        *(f"{name}.html" for name in figures.split()),
        "manifest.json",
        "trained.npz",
        "untrained.npz",
    }
    assert len(pd.read_csv(out / "digits.csv")) == 250
    table = pd.read_csv(out / "importance.csv")
    means = table.groupby(["feature", "model", "layer"])["importance"].mean()
    digit, slant = means["digit"], means["slant"]
    assert digit["trained"].idxmax() > 0 and digit["trained", 3] > digit["trained", 0]
    assert digit["trained", 3] > 1.5 * digit["untrained", 3]
    assert slant["trained", 3] < 0.3 * slant["trained", 0]
    pd.testing.assert_series_equal(means[:, "trained", 0], means[:, "untrained", 0])


def test_loops_are_counted_in_the_image(digits):
    ring, bar, eight = np.zeros((3, 8, 8))
    ring[1:7, 1:7], ring[3:5, 3:5] = 16, 0
    bar[:, 3] = 16
    eight[:, 1:7] = 16
    eight[1:3, 3:5] = eight[5:7, 3:5] = 0
    assert [digits.loops(image) for image in (bar, ring, eight)] == [0, 1, 2]
