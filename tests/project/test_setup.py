"""What the set-up promises: pins, one set of requirements, a light import, no unsafe calls."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from inputs import arguments_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = sorted(path.name for path in ROOT.glob("requirements*.txt"))
# Compiled against CUDA, which the machine that writes constraints.txt may not have.
GPU = "requirements-gpu.txt"
OPTIONAL = {"requirements-torchsort.txt", "requirements-bench.txt", "requirements-docs.txt", GPU}


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pins(name: str) -> dict[str, str]:
    """Name of each package in a requirements file, as PyPI spells it, and the version pinned."""
    pairs = (line.split("==") for line in lines(name))
    return {canonicalize_name(package): version for package, version in pairs}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("name", [*REQUIREMENTS, "constraints.txt"])
def test_requirements_are_pinned_exactly_alike_and_installed_so(name: str) -> None:
    for line in lines(name):
        # no range, wildcard or address, and no local label, which would bind to CPU or CUDA
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9a-z.]*", line), f"{name}: {line}"
    if name != GPU:
        assert pins(name).items() <= pins("constraints.txt").items()
    if name not in {*OPTIONAL, "constraints.txt"}:
        for package, version in pins(name).items():
            assert importlib.metadata.version(package).split("+")[0] == version, package


def test_the_package_asks_for_what_is_pinned() -> None:
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    asked = [Requirement(line) for group in groups for line in group]
    tested = pins("requirements.txt")
    assert {canonicalize_name(each.name) for each in asked} == set(tested) - {"setuptools", "wheel"}
    for each in asked:
        assert each.specifier.contains(tested[canonicalize_name(each.name)]), each


def test_versions_agree() -> None:
    version = project()["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert importlib.metadata.version("mlem-core") == version


def test_make_targets_and_who_runs_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {
        "setup",
        "app",
        "test",
        "test-all",
        "faults",
        "lint",
        "format",
        "bench",
        "clean",
        "help",
    } <= targets
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets == set(phony.split())
    assert re.findall("^make .+", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE) == [
        "make lint",
        "make test-all",
    ]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))
    when = {
        step["run"]: step.get("if", "")
        for step in workflow["jobs"]["tests"]["steps"]
        if "run" in step
    }
    assert list(when) == ["make lint", "make test", "make test-all"] and not when["make lint"]
    assert "'push'" in when["make test"] and "'schedule'" in when["make test-all"]


# --- scripts/setup.sh -----------------------------------------------------------------------


class BareMachine:
    """A copy of what the set-up reads, and a PATH with no Python but those given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, folder / "bin"
        for path in [*ROOT.glob("*.txt"), ROOT / "pyproject.toml"]:
            shutil.copy(path, folder)
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        self.programs.mkdir()
        for tool in ("sh", "dirname", "cat", "rm", "mkdir", "grep", "sleep"):
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)

    def add_python(self, script: str) -> None:
        (self.programs / "python3").unlink(missing_ok=True)  # which may be running
        (self.programs / "python3").write_text(f"#!{self.programs}/sh\n{script}\n")
        (self.programs / "python3").chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.programs / "sh", "scripts/setup.sh"],
            cwd=self.folder,
            env={"PATH": str(self.programs)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self) -> tuple[int, list[str]]:
        """Exit code and lines on stderr."""
        process = self.start()
        return process.wait(30), process.communicate()[1].splitlines()

    def at_work(self) -> subprocess.Popen[str]:
        """A set-up that holds its lock for a second, and then finds no Python."""
        self.add_python("sleep 1; exit 1")
        first = self.start()
        while not (self.folder / ".venv.lock" / "pid").exists():
            time.sleep(0.01)
        return first


@pytest.fixture
def bare_machine(tmp_path: Path) -> BareMachine:
    return BareMachine(tmp_path)


NO_PYTHON = (
    "setup: no Python 3.11 or newer on the PATH "
    "(looked for python3, python3.13, python3.12, python3.11)."
)


@pytest.mark.parametrize("python", ["", "exit 1"], ids=["none", "an old one"])
def test_no_python_is_said_in_one_line(bare_machine: BareMachine, python: str) -> None:
    if python:
        bare_machine.add_python(python)
    assert bare_machine.setup() == (1, [NO_PYTHON])
    assert bare_machine.setup() == (1, [NO_PYTHON])  # nothing in the way of a second try


def test_a_missing_venv_module_is_said_in_one_line(bare_machine: BareMachine) -> None:
    bare_machine.add_python('case "$2" in *ensurepip*) exit 1;; esac')
    code, (said,) = bare_machine.setup()
    assert code == 1 and "python3 lacks its venv module" in said


def test_a_second_setup_waits_for_the_first(bare_machine: BareMachine) -> None:
    first = bare_machine.at_work()
    code, (waiting, *said) = bare_machine.setup()
    assert "waiting" in waiting and str(first.pid) in waiting
    assert (code, said) == (1, [NO_PYTHON])
    assert (first.wait(30), first.communicate()[1].splitlines()) == (1, [NO_PYTHON])


def test_a_killed_setup_is_not_waited_for(bare_machine: BareMachine) -> None:
    first = bare_machine.at_work()
    first.kill()
    first.wait(30)
    bare_machine.add_python("exit 1")
    assert bare_machine.setup() == (1, [NO_PYTHON])


# --- what is imported and called ------------------------------------------------------------


def test_every_public_name_is_there_and_documented() -> None:
    import mlem_core

    for name in mlem_core.__all__:
        # What a dataclass writes for itself is no documentation.
        said = getattr(mlem_core, name).__doc__
        assert name in dir(mlem_core) and said and not said.startswith(f"{name}("), name


LIGHT = """
import importlib, os, pkgutil, sys, mlem_core
from mlem_core.cli.commands import main
assert main(sys.argv[1:]) == 0
print(*sorted({"sklearn", "scipy.stats"} & set(sys.modules)), file=sys.stderr)
network = "mlem_core.models.bidirectional"  # imported where a model is opened
for module in pkgutil.walk_packages(mlem_core.__path__, "mlem_core."):
    if module.name != network:
        importlib.import_module(module.name)
heavy = {"torch", "transformers", "streamlit", "torchsort", "kaleido"}
print(*sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def test_an_analysis_waits_for_no_heavy_import_and_no_module_has_one(planted, tmp_path) -> None:
    given = ["analyze", *arguments_of(planted.spec), "--out", str(tmp_path / "found")]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *given],
        capture_output=True,
        text=True,
        env={**os.environ, "MLEM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == ["", ""]


UNSAFE = (
    r"allow_pickle\s*=\s*True|\btorch\.load\(|\bpickle\.loads?\(|trust_remote_code\s*=\s*True|"
    r"unsafe_allow_(html|javascript)\s*=\s*True|\bshell\s*=\s*True"
)


def test_no_unsafe_calls_and_no_streamlit_in_the_core() -> None:
    folders = ("mlem_core", "pages", "scripts", "benchmarks", "grammars")
    code = [*ROOT.glob("*.py"), *(p for folder in folders for p in ROOT.glob(f"{folder}/**/*.py"))]
    assert len(code) > 200
    for path in code:
        text = path.read_text("utf-8")
        assert not re.search(UNSAFE, text), path
        if path.is_relative_to(ROOT / "mlem_core"):
            assert not re.search(r"^\s*(import|from) streamlit\b", text, re.MULTILINE), path
