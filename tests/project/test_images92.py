"""The worked example of docs/brain.md: the 92 images, or a stand-in, beside rsatoolbox."""

import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.repository import ROOT
from scipy.io import loadmat

SCRIPT = ROOT / "examples" / "images92" / "images92.py"
# The published files, where they have been downloaded.
PUBLISHED = os.environ.get("MLEM_IMAGES92", "")
COLUMNS = {"": (3, 4), "published": (1, 2)}


def by_rsatoolbox(folder):
    """Noise ceilings and mean RSA of each model, from the files of MATLAB."""
    from rsatoolbox.inference import boot_noise_ceiling
    from rsatoolbox.rdm import RDMs, compare

    brains = loadmat(folder / "92_brainRDMs.mat")["RDMs"]
    models = loadmat(folder / "92_modelRDMs.mat")["Models"].ravel()
    by_session = [[entry["RDM"].astype(float) for entry in subject] for subject in brains[0]]
    subjects = RDMs(np.mean(by_session, axis=1))
    lower, upper = boot_noise_ceiling(subjects, method="spearman")
    rdms = RDMs(np.stack([entry["RDM"].astype(float) for entry in models]))
    rsa = compare(rdms, subjects, method="spearman").mean(axis=1)
    names = [str(entry["name"].item()) for entry in models]
    return {"lower noise ceiling": lower, "upper noise ceiling": upper} | dict(
        zip(names, rsa, strict=True)
    )


def documented(column):
    """Numbers of a column of the table of the example's README, by their names."""
    text = (ROOT / "examples" / "images92" / "README.md").read_text("utf-8")
    lines = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    cells = [line.split(" | ") for line in lines]
    return {row[0]: row[column] for row in cells if len(row) == 5 and row[1].startswith(".")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", COLUMNS)
def test_the_92_images_have_rsatoolboxs_numbers(kind, tmp_path, monkeypatch, capsys):
    if kind and not PUBLISHED:
        pytest.skip("MLEM_IMAGES92 names no folder with the published files")
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    data = ["--data", PUBLISHED] if kind else []
    monkeypatch.setattr(sys, "argv", ["images92.py", "--out", str(tmp_path / "out"), *data])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "are below the lower noise ceiling" in capsys.readouterr().out
    out = tmp_path / "out"
    (ceiling,) = pd.read_csv(out / "noise_ceilings.csv").to_dict("records")
    models = pd.read_csv(out / "model_ceilings.csv").set_index("model").loc["models"]
    expected = by_rsatoolbox(Path(PUBLISHED) if kind else out / "stand-in")
    found = dict(zip(expected, [ceiling["lower"], ceiling["upper"], *models["rsa"]], strict=True))
    assert found == pytest.approx(expected, abs=1e-9)
    for numbers, column in zip((found, expected), COLUMNS[kind], strict=True):
        printed = {name: f"{value:.5f}".lstrip("0") for name, value in numbers.items()}
        assert printed == documented(column)
    # What the features predict of the subjects stands beside the models.
    features = (
        pd.read_csv(out / "importance.csv").groupby(["model", "feature"])["importance"].mean()
    )
    assert features["it@subject1"].idxmax() == "animate"
