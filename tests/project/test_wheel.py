"""The package: built, installed into new environments in another folder, and used there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from driving import answering
from packaging.requirements import Requirement
from test_house import project

from mlem_core.base.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
NOT_PACKED = (".*", "build", "dist", "cache", "out", "tests", "validation", "__pycache__")
SAVE = "import numpy as np; np.save('a.npy', np.random.default_rng(0).random((2040, 8)))"
pytestmark = pytest.mark.slow


def told(*command, **more):
    """What a command prints; it must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: what an earlier build has left behind would be packed too."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "src", ignore=shutil.ignore_patterns(*NOT_PACKED))
    shutil.copytree(ROOT / ".streamlit", folder / "src" / ".streamlit")
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    told(*build, "-w", folder, folder / "src")
    return next(folder.glob("*.whl"))


def test_it_has_the_app_below_the_package_and_stays_small(wheel):
    assert wheel.stat().st_size < 60e6
    with ZipFile(wheel) as packed:
        names = packed.namelist()
        about = packed.read(f"mlem_explorer-{VERSION}.dist-info/METADATA").decode()
    assert {name.split("/")[0] for name in names} == {"mlem_core", about_folder(names)}
    app = {name.removeprefix("mlem_core/_app/") for name in names if "/_app/" in name}
    for path in (*ROOT.glob("pages/**/*.py"), ROOT / ".streamlit/config.toml", ROOT / "app.py"):
        assert str(path.relative_to(ROOT)) in app
    assert "# MLEM Explorer" in about and "Project-URL" in about


def about_folder(names):
    return next(name.split("/")[0] for name in names if ".dist-info/" in name)


def python(name):
    """An interpreter of this version, on the PATH or of pyenv; the test is skipped without one."""
    there = [shutil.which(name), *sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"))]
    for one in filter(None, there):
        if not subprocess.run(
            [one, "-c", "import venv, ensurepip"], capture_output=True
        ).returncode:
            return one
    pytest.skip(f"there is no {name} on this machine")


def lowest():
    """The oldest version of each package that the floors allow; torch's is of several GB."""
    extra = project()["optional-dependencies"]["app"]
    asked = [Requirement(line) for line in (*project()["dependencies"], *extra)]
    pins = [f"{one.name}=={one.specifier}".replace(">=", "") for one in asked]
    pinned = (ROOT / "requirements.txt").read_text("utf-8")
    return [one for one in pins if not one.startswith("torch==")] + re.findall(
        "^torch==.*", pinned, re.M
    )


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "name, oldest",
    [("python3.11", False), ("python3.11", True), ("python3.12", False), ("python3.13", False)],
)
def test_the_app_answers_and_an_analysis_runs(wheel, tmp_path, name, oldest):
    """Other Pythons than 3.11 go without torch, whose build for them is of several GB."""
    told(python(name), "-m", "venv", tmp_path / "new")
    new = tmp_path / "new" / "bin"
    pins = ROOT / "constraints.txt"
    if oldest:
        pins = tmp_path / "lowest.txt"
        pins.write_text("\n".join(lowest()))
    install = (new / "python", "-m", "pip", "install", "-q", "--no-compile", "-c", pins)
    given = ("--model", "mini-gpt2", "--layers", "0,6")
    if name == "python3.11":
        told(*install, f"{wheel}[app]")
    else:
        asked = [Requirement(line) for line in project()["dependencies"]]
        without = ("torch", "accelerate", "transformers")
        told(*install, *(one.name for one in asked if one.name not in without), "streamlit")
        told(*install, "--no-deps", wheel)
        told(
            new / "python",
            "-c",
            SAVE,
            cwd=tmp_path,
        )
        given = ("--representations", "a=a.npy")
    away = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLEM_CACHE": str(tmp_path / "cache")
    }
    assert told(new / "mlem", "--version", cwd=tmp_path, env=away) == f"MLEM Explorer {VERSION}\n"
    analyze = (new / "mlem", "analyze", "--stimuli", "probing", *given, "--out", "found")
    assert "Matters most" in told(*analyze, cwd=tmp_path, env=away)
    assert (tmp_path / "found" / "importance.csv").is_file()
    with answering([new / "mlem", "app", "--port"], tmp_path, away) as (_, log, _):
        assert "Traceback" not in log.read_text()
