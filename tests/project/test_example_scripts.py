"""The worked examples run, and show what their pages say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.py"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """The example with fewer images, as a user runs it."""
    folder = tmp_path_factory.mktemp("digits")
    done = subprocess.run(
        [sys.executable, str(DIGITS), "--out", str(folder / "out"), "--images", "250"],
        cwd=ROOT,
        env={**os.environ, "MLEM_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "unseen images rightly" in done.stdout
    return folder / "out"


def test_digits_end_in_the_files_of_every_analysis(out):
    tables = [
        "folds",
        "importance",
        "layer_map",
        "scores",
        "similarity_profiles",
        "similarity_rsa",
        "weights",
        "digits",
    ]
    figures = ["profiles", "similarity", "layer_map", "images_0", "images_2"]
    names = {path.name for path in out.iterdir()}
    assert names == {
        *(f"{name}.csv" for name in tables),
        *(f"{name}.html" for name in figures),
        "manifest.json",
        "trained.npz",
        "untrained.npz",
    }
    for name in figures:
        assert "plotly" in (out / f"{name}.html").read_text(encoding="utf-8")
    assert len(pd.read_csv(out / "digits.csv")) == 250


def test_training_makes_the_digit_matter_and_the_slant_not(out):
    table = pd.read_csv(out / "importance.csv")
    means = table.groupby(["feature", "model", "layer"])["importance"].mean()
    digit, slant = means["digit"], means["slant"]
    assert digit["trained"].idxmax() > 0 and digit["trained", 3] > digit["trained", 0]
    assert digit["trained", 3] > 1.5 * digit["untrained", 3]
    assert slant["trained", 3] < 0.3 * slant["trained", 0]
    pd.testing.assert_series_equal(means[:, "trained", 0], means[:, "untrained", 0])


def test_loops_are_counted_in_the_image():
    spec = importlib.util.spec_from_file_location("digits", DIGITS)
    assert spec is not None and spec.loader is not None
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    ring = np.zeros((8, 8))
    ring[1:7, 1:7], ring[3:5, 3:5] = 16, 0
    bar = np.zeros((8, 8))
    bar[:, 3] = 16
    eight = np.zeros((8, 8))
    eight[:, 1:7] = 16
    eight[1:3, 3:5] = eight[5:7, 3:5] = 0
    assert [digits.loops(image) for image in (bar, ring, eight)] == [0, 1, 2]
