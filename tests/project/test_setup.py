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

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = sorted(path.name for path in ROOT.glob("requirements*.txt"))
# Compiled against CUDA, which the machine that writes constraints.txt may not have.
GPU = "requirements-gpu.txt"
OPTIONAL = {"requirements-torchsort.txt", "requirements-bench.txt", "requirements-docs.txt", GPU}
BUILD = {"setuptools", "wheel"}


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pins(name: str) -> dict[str, str]:
    """Name of each package in a requirements file, as PyPI spells it, and the version pinned."""
    pairs = (line.split("==") for line in lines(name))
    return {canonicalize_name(package): version for package, version in pairs}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def product_code() -> list[Path]:
    folders = ("mlem_core", "pages", "scripts", "benchmarks", "grammars")
    return [
        *ROOT.glob("*.py"),
        *(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")),
    ]


@pytest.mark.parametrize("name", [*REQUIREMENTS, "constraints.txt"])
def test_every_requirement_is_pinned_exactly(name: str) -> None:
    for line in lines(name):
        # no range, wildcard or address, and no local label, which would bind to CPU or CUDA
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9a-z.]*", line), f"{name}: {line}"


@pytest.mark.parametrize("name", [name for name in REQUIREMENTS if name != GPU])
def test_constraints_have_the_same_pins(name: str) -> None:
    assert pins(name).items() <= pins("constraints.txt").items()


@pytest.mark.parametrize("name", [name for name in REQUIREMENTS if name not in OPTIONAL])
def test_what_is_installed_is_what_is_pinned(name: str) -> None:
    for package, version in pins(name).items():
        assert importlib.metadata.version(package).split("+")[0] == version, package


def test_the_package_asks_for_what_is_pinned() -> None:
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    asked = [Requirement(line) for group in groups for line in group]
    tested = pins("requirements.txt")
    assert {canonicalize_name(each.name) for each in asked} == set(tested) - BUILD
    for each in asked:
        assert each.specifier.contains(tested[canonicalize_name(each.name)]), each


def test_versions_agree() -> None:
    version = project()["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert importlib.metadata.version("mlem-core") == version


def test_make_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"setup", "app", "test", "lint", "format", "bench", "clean", "help"} <= targets


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


@pytest.fixture
def bare_machine(tmp_path: Path) -> BareMachine:
    return BareMachine(tmp_path)


NO_PYTHON = (
    "setup: no Python 3.11 or newer on the PATH "
    "(looked for python3, python3.13, python3.12, python3.11)."
)


def test_no_python_is_said_in_one_line(bare_machine: BareMachine) -> None:
    assert bare_machine.setup() == (1, [NO_PYTHON])
    assert bare_machine.setup() == (1, [NO_PYTHON])  # nothing in the way of a second try


def test_an_old_python_is_no_python(bare_machine: BareMachine) -> None:
    bare_machine.add_python("exit 1")
    assert bare_machine.setup() == (1, [NO_PYTHON])


def test_a_missing_venv_module_is_said_in_one_line(bare_machine: BareMachine) -> None:
    bare_machine.add_python('case "$2" in *ensurepip*) exit 1;; esac')
    code, said = bare_machine.setup()
    assert code == 1
    assert len(said) == 1 and said[0].startswith("setup: python3 lacks its venv module; install it")


def test_a_second_setup_waits_for_the_first(bare_machine: BareMachine) -> None:
    bare_machine.add_python("sleep 2; exit 1")
    first = bare_machine.start()
    while not (bare_machine.folder / ".venv.lock" / "pid").exists():
        time.sleep(0.01)
    code, said = bare_machine.setup()
    assert said[0] == f"setup: waiting for the set-up that process {first.pid} does here"
    assert (code, said[1:]) == (1, [NO_PYTHON])
    assert (first.wait(30), first.communicate()[1].splitlines()) == (1, [NO_PYTHON])


def test_a_killed_setup_is_not_waited_for(bare_machine: BareMachine) -> None:
    bare_machine.add_python("sleep 2; exit 1")
    first = bare_machine.start()
    while not (bare_machine.folder / ".venv.lock" / "pid").exists():
        time.sleep(0.01)
    first.kill()
    first.wait(30)
    bare_machine.add_python("exit 1")
    assert bare_machine.setup() == (1, [NO_PYTHON])


def test_every_public_name_is_there_and_documented() -> None:
    import mlem_core

    for name in mlem_core.__all__:
        # What a dataclass writes for itself is no documentation.
        said = getattr(mlem_core, name).__doc__
        assert name in dir(mlem_core) and said and not said.startswith(f"{name}("), name


def test_importing_the_core_is_light() -> None:
    code = """
import importlib, pkgutil, sys, mlem_core
network = "mlem_core.models.bidirectional"  # imported where a model is opened
for module in pkgutil.walk_packages(mlem_core.__path__, "mlem_core."):
    if module.name != network:
        importlib.import_module(module.name)
heavy = {"torch", "transformers", "streamlit", "torchsort", "kaleido"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_an_analysis_does_not_wait_for_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"Word {n} here.,{'xy'[n % 2]},{n % 7}" for n in range(60)]
    (tmp_path / "words.csv").write_text("\n".join(["sentence,kind,size", *rows]), encoding="utf-8")
    np.savez(tmp_path / "brain.npz", V1=rng.standard_normal((60, 4)), V2=rng.random((60, 4)))
    code = """
import sys
from mlem_core.cli.commands import main
given = "--stimuli words.csv --representations brain=brain.npz --out found".split()
status = main(["analyze", *given])
print(status, *({"sklearn", "scipy.stats"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MLEM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr.splitlines()[-1] == "0", done.stderr


def test_the_core_knows_nothing_of_streamlit() -> None:
    for path in ROOT.glob("mlem_core/**/*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"^\s*(import|from) streamlit\b", text, re.MULTILINE), path


@pytest.mark.parametrize(
    "unsafe",
    [
        r"allow_pickle\s*=\s*True",
        r"\btorch\.load\(",
        r"\bpickle\.loads?\(",
        r"trust_remote_code\s*=\s*True",
        r"unsafe_allow_html\s*=\s*True",
        r"unsafe_allow_javascript\s*=\s*True",
        r"\bshell\s*=\s*True",
    ],
)
def test_no_unsafe_calls(unsafe: str) -> None:
    found = [path for path in product_code() if re.search(unsafe, path.read_text("utf-8"))]
    assert not found
