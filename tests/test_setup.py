"""What the set-up promises: pins, one set of requirements, a light import, no unsafe calls."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = sorted(path.name for path in ROOT.glob("requirements*.txt"))
OPTIONAL = "requirements-torchsort.txt"
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
    folders = ("mlem_core", "pages", "scripts", "benchmarks")
    return [
        *ROOT.glob("*.py"),
        *(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")),
    ]


@pytest.mark.parametrize("name", [*REQUIREMENTS, "constraints.txt"])
def test_every_requirement_is_pinned_exactly(name: str) -> None:
    for line in lines(name):
        # no range, wildcard or address, and no local label, which would bind to CPU or CUDA
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9a-z.]*", line), f"{name}: {line}"


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_constraints_have_the_same_pins(name: str) -> None:
    assert pins(name).items() <= pins("constraints.txt").items()


@pytest.mark.parametrize("name", [name for name in REQUIREMENTS if name != OPTIONAL])
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


@pytest.fixture
def bare_machine(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the set-up on a copy of what it reads, with no Python on the PATH but those given."""
    for path in [*ROOT.glob("*.txt"), ROOT / "pyproject.toml"]:
        shutil.copy(path, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in ("sh", "dirname", "cat", "rm", "mkdir", "grep", "tr"):
        (programs / tool).symlink_to(shutil.which(tool) or tool)

    def run(**pythons: str) -> subprocess.CompletedProcess[str]:
        for name, script in pythons.items():
            (programs / name).write_text(f"#!{programs}/sh\n{script}\n")
            (programs / name).chmod(0o755)
        return subprocess.run(
            [programs / "sh", "scripts/setup.sh"],
            cwd=tmp_path,
            env={"PATH": str(programs)},
            capture_output=True,
            text=True,
        )

    return run


def test_no_python_is_said_in_one_line(bare_machine: Callable) -> None:
    done = bare_machine()
    assert done.returncode == 1
    assert done.stderr.startswith("setup: no Python 3.11 or newer") and done.stderr.count("\n") == 1


def test_an_old_python_is_no_python(bare_machine: Callable) -> None:
    done = bare_machine(python3="exit 1")
    assert done.returncode == 1
    assert done.stderr.startswith("setup: no Python 3.11 or newer") and done.stderr.count("\n") == 1


def test_a_missing_venv_module_is_said_in_one_line(bare_machine: Callable) -> None:
    done = bare_machine(python3='case "$2" in *ensurepip*) exit 1;; esac')
    assert done.returncode == 1
    assert done.stderr.startswith("setup: python3 lacks its venv") and done.stderr.count("\n") == 1


def test_two_setups_at_once(bare_machine: Callable, tmp_path: Path) -> None:
    lock = tmp_path / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text(str(os.getpid()))  # a process that lives
    done = bare_machine()
    assert done.returncode == 1 and f"(process {os.getpid()})" in done.stderr
    assert lock.exists()  # the other's lock is left alone


def test_importing_the_core_is_light() -> None:
    code = """
import importlib, pkgutil, sys, mlem_core
for module in pkgutil.walk_packages(mlem_core.__path__, "mlem_core."):
    importlib.import_module(module.name)
heavy = {"torch", "transformers", "streamlit", "torchsort", "kaleido"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


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
