"""What the docs have code for runs: the diffs, the gallery, the tutorial, the digits."""

import gzip
import os
import re
import runpy
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

PAGE = (ROOT / "docs" / "contributing.md").read_text("utf-8")
DIFFS = re.findall(r"(?ms)^```diff\n(.*?)^```$", PAGE)
HEARD = {"text": True, "capture_output": True}
FILES = [2, 1, 1, 1, 1, 1, 1]  # estimator, distance, similarity, set, model, figure, format
ADDED = """
import zipfile
from mlem_core.cli.commands import main
from mlem_core.report.formats import FORMATS
from mlem_core.tasks import examples
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
files = "--stimuli colours --representations brain=brain.npz --folds 3"
choices = "--estimator clipped --distance chebyshev --similarity pearson --bootstrap 20"
asked = f"analyze {files} {choices} --out out --capsule all.zip"
assert main(asked.split()) == 0
for command in ("why brain:0 brain:1 --bootstrap 20", "audit --out out"):
    assert main(f"{command} {files} --similarity pearson".split()) == 0
assert main(["verify", "all.zip"]) == 0 and "json" in FORMATS
assert main("analyze --stimuli colours --model tiny-bert --out out2".split()) == 2
names = zipfile.ZipFile("all.zip").namelist()
assert {"figures/best_layers.html", "latex/best_layers.tex"} <= set(names)
assert len(examples.example().plot.best_layers().data) == 1
for page in ("profiles", "report"):
    app = AppTest.from_file("app.py", default_timeout=120)
    app._page_hash = calc_hash(page)
    app.run()
    assert not app.exception and not app.error, [one.value for one in (*app.exception, *app.error)]
    said = [one.value for one in app.subheader] + [one.label for one in app.button]
    print(said.count("Best layers"), len(app.get("plotly_chart")))
app._page_hash = calc_hash("heatmaps")
app.run()
print("Pearson: squared distances" in app.selectbox(key="choice similarity example").options)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project with all diffs applied."""
    assert [len(re.findall(r"^diff --git ", diff, re.MULTILINE)) for diff in DIFFS] == FILES
    root = tmp_path_factory.mktemp("copy")
    for folder in ("mlem_core", "pages"):
        # With what is compiled, which the copies of the files have the times for.
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("trio"))
    shutil.copy(ROOT / "app.py", root)
    for diff in DIFFS:
        done = subprocess.run(["git", "apply", "-"], input=diff, cwd=root, **HEARD)
        assert done.returncode == 0, done.stderr
    return root


@pytest.mark.slow
def test_what_the_diffs_add_runs_from_the_command_line_and_in_the_app(copy):
    write_csv(words(), copy / "colours.csv")
    packed = gzip.compress((copy / "colours.csv").read_bytes(), mtime=0)
    (copy / "mlem_core" / "data" / "sets" / "colours.csv.gz").write_bytes(packed)
    rows = np.random.default_rng(0).standard_normal((len(words()), 4))
    np.savez(copy / "brain.npz", layer_00=rows, layer_01=rows[::-1])
    paths = {"PYTHONPATH": str(copy), "MLEM_CACHE": str(copy / "cache")}
    paths["BROWSER_PATH"] = "/nowhere"  # a capsule has its figures as HTML then, at once
    asked = [sys.executable, "-c", ADDED]
    done = subprocess.run(asked, cwd=copy, env={**os.environ, **paths}, **HEARD)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["1 2", "1 0", "True"]
    assert "Pearson r" in done.stdout
    assert "tiny_bert_package" in done.stderr
    assert (copy / "out" / "similarity_intervals_pearson.csv").exists()
    assert "pearson_before" in pd.read_csv(copy / "out" / "audit_pairs.csv")


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
