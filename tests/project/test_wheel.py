"""The package: built, installed into new environments in another folder, and used there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers.browser import answering
from helpers.commands import output_of
from helpers.repository import ROOT, pins, project
from packaging.requirements import Requirement

from mlem_core.base import VERSION

LEFT = (".[!s]*", "build", "dist", "cache", "out", "tests", "validation", "__pycache__")
SAVE = "import numpy as np; np.save('a.npy', np.random.default_rng(0).random((2040, 8)))"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: what an earlier build has left behind would be packed too."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "src", ignore=shutil.ignore_patterns(*LEFT))
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    output_of(*build, "-w", folder, folder / "src")
    return next(folder.glob("*.whl"))


def test_it_has_the_app_below_the_package_and_stays_small(wheel):
    assert wheel.stat().st_size < 60e6
    with ZipFile(wheel) as packed:
        names, info = packed.namelist(), f"mlem_explorer-{VERSION}.dist-info"
        about = packed.read(f"{info}/METADATA").decode()
    assert {name.split("/")[0] for name in names} == {"mlem_core", info}
    for path in (*ROOT.glob("pages/**/*.py"), ROOT / ".streamlit/config.toml", ROOT / "app.py"):
        assert f"mlem_core/_app/{path.relative_to(ROOT)}" in names
    assert "# MLEM Explorer" in about and "Project-URL" in about


def python(name):
    """An interpreter of this version, on the PATH or of pyenv; the test is skipped without one."""
    there = [shutil.which(name), *sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"))]
    for one in filter(None, there):
        if not subprocess.run([one, "-c", "import ensurepip"], capture_output=True).returncode:
            return one
    pytest.skip(f"there is no {name} on this machine")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("oldest", [False, True], ids=["pinned", "oldest"])
@pytest.mark.parametrize("name", ["python3.11", "python3.12", "python3.13"])
def test_the_app_answers_and_an_analysis_runs(wheel, tmp_path, name, oldest):
    """torch is the pinned one: others, and those for other Pythons, are of several GB."""
    if oldest and name != "python3.11":
        pytest.skip("the floors are those of Python 3.11")
    output_of(python(name), "-m", "venv", tmp_path / "new")
    new, versions = tmp_path / "new" / "bin", ROOT / "constraints.txt"
    needed = [*project()["dependencies"], *project()["optional-dependencies"]["app"]]
    if oldest:
        versions = tmp_path / "oldest.txt"
        floors = [line.replace(">=", "==") for line in needed if not line.startswith("torch")]
        versions.write_text("\n".join((*floors, f"torch=={pins('requirements.txt')['torch']}")))
    install = (new / "python", "-m", "pip", "install", "-q", "--no-compile", "-c", versions)
    given = ("--model=mini-gpt2", "--layers=0,6")
    if name == "python3.11":
        output_of(*install, f"{wheel}[app]")
    else:
        names = {Requirement(line).name for line in needed} - {"torch", "accelerate"}
        output_of(*install, *names)
        output_of(*install, "--no-deps", wheel)
        output_of(new / "python", "-c", SAVE, cwd=tmp_path)
        given = ("--representations=a=a.npy",)
    away = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    away["MLEM_CACHE"] = str(tmp_path / "cache")
    analyze = (new / "mlem", "analyze", "--stimuli=probing", *given, "--out=found")
    assert "Matters most" in output_of(*analyze, cwd=tmp_path, env=away)
    with answering([new / "mlem", "app", "--port"], tmp_path, away) as (_, log, _):
        assert "Traceback" not in log.read_text()
    shutil.rmtree(tmp_path / "new")  # a gigabyte
