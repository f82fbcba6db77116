"""What the docs have code for runs: the gallery, the tutorial, the digits."""

import re
import runpy
import sys

import gallery
import pandas as pd
import pytest
import tutorial
from helpers.repository import ROOT


@pytest.mark.slow
def test_the_code_of_the_gallery_draws_its_images(tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    drawn = dict(gallery.drawn())
    assert all(len(figure.data) for figure in drawn.values())
    images = ROOT / "docs" / "images" / "gallery"
    assert set(drawn) == set(images.glob("*.png")) and len(drawn) >= 13


@pytest.mark.slow
def test_the_tutorial_runs_and_says_what_it_showed(tmp_path, monkeypatch, chromium_path):
    import nbformat

    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "work").mkdir()
    new, kept = tutorial.executed(tmp_path / "work"), nbformat.read(tutorial.PAGE, as_version=4)
    written = {path.name for path in (tmp_path / "work").iterdir()}
    assert {"my.csv", "profiles.pdf", "why.pdf", "tables"} <= written

    def shown(notebook):
        """Its words, which are the same on every machine; the last digits of numbers need not."""
        outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
        texts = [one.get("text") or one["data"]["text/plain"] for one in outputs]
        return re.sub(r"[-−]?[\d.]+|\s+", " ", "\n".join(texts)).split()

    assert shown(new) == shown(kept) and len(shown(new)) > 100


@pytest.mark.slow
def test_training_on_digits_makes_the_digit_matter_and_the_slant_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    out, script = tmp_path / "out", str(ROOT / "examples" / "digits" / "digits.py")
    monkeypatch.setattr(sys, "argv", ["digits.py", "--out", str(out), "--images", "250"])
    runpy.run_path(script, run_name="__main__")
    assert "unseen images rightly" in capsys.readouterr().out
    assert len(pd.read_csv(out / "digits.csv")) == 250
    table = pd.read_csv(out / "importance.csv")
    means = table.groupby(["feature", "model", "layer"])["importance"].mean()
    digit, slant = means["digit"], means["slant"]
    assert digit["trained"].idxmax() > 0 and digit["trained", 3] > digit["trained", 0]
    assert digit["trained", 3] > 1.5 * digit["untrained", 3]
    assert slant["trained", 3] < 0.3 * slant["trained", 0]
    pd.testing.assert_series_equal(means[:, "trained", 0], means[:, "untrained", 0])
