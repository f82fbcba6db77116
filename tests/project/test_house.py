"""The house stays small, and the set-up keeps its promises: pins, a light import, safe calls."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys

import grimp
import pytest
from helpers.inputs import arguments_of
from helpers.repository import ROOT, lines, pins, project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mlem_core

PACKAGES = sorted(path.parent.name for path in ROOT.glob("mlem_core/*/__init__.py"))


def levels(module_imports):
    """On which level each module stands: above all that it imports; level 1 imports nothing."""
    found: dict[str, int] = {}

    def level(name, above=()):
        assert name not in above, f"a circle: {' -> '.join((*above, name))}"
        if name not in found:
            found[name] = 1 + max(
                (level(other, (*above, name)) for other in module_imports[name]), default=0
            )
        return found[name]

    for name in module_imports:
        level(name)
    return found


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("mlem_core", "pages", cache_dir=None)


def test_modules_say_what_they_are_for_and_all_is_short():
    long: list[str] = []
    modules = [*ROOT.glob("mlem_core/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "app.py"]
    assert modules
    for path in modules:
        text, name = path.read_text("utf-8"), str(path.relative_to(ROOT))
        tree = ast.parse(text)
        said = ast.get_docstring(tree)
        assert said and said.splitlines()[0].endswith((".", ":", "?")), name
        long += [name] * (len(text.splitlines()) > 600)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            most = 400 if isinstance(node, ast.ClassDef) else 80
            if node.end_lineno - node.lineno + 1 > most:
                long.append(f"{name} {node.name}")
    assert not long


def test_a_package_has_at_most_eight_levels(graph):
    for package in PACKAGES:
        inside = {name for name in graph.modules if name.startswith(f"mlem_core.{package}.")}
        imports = {name: graph.find_modules_directly_imported_by(name) & inside for name in inside}
        assert max(levels(imports).values(), default=0) <= 8, package


def test_the_packages_stand_on_at_most_fourteen_levels(graph):
    def room(module):
        return ".".join(module.split(".")[:2]) if module.startswith("mlem_core.") else "pages"

    imports: dict[str, set[str]] = {}
    for name in graph.modules - {"mlem_core"}:
        imported = graph.find_modules_directly_imported_by(name) - {"mlem_core"}
        imports.setdefault(room(name), set()).update(room(other) for other in imported)
    assert max(levels({k: v - {k} for k, v in imports.items()}).values()) <= 14


REQUIREMENTS = sorted(path.name for path in ROOT.glob("requirements*.txt"))
# Compiled against CUDA, which the machine that writes constraints.txt may not have.
GPU = "requirements-gpu.txt"
EXTRAS = ("adapters", "docs", "release", "torchsort")
OPTIONAL = {*(f"requirements-{name}.txt" for name in EXTRAS), GPU}


@pytest.mark.parametrize("name", [*REQUIREMENTS, "constraints.txt"])
def test_requirements_are_pinned_exactly_alike_and_installed_so(name):
    for line in lines(name):
        # no range, wildcard or address, and no local label, which would bind to CPU or CUDA
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9a-z.]*", line), f"{name}: {line}"
    if name != GPU:
        assert pins(name).items() <= pins("constraints.txt").items()
    if name not in {*OPTIONAL, "constraints.txt"}:
        for package, version in pins(name).items():
            assert importlib.metadata.version(package).split("+")[0] == version, package


def test_the_package_asks_for_what_is_pinned():
    # UMAP is optional in tests too: they skip where it is not installed.
    extras = [group for name, group in project()["optional-dependencies"].items() if name != "umap"]
    groups = [project()["dependencies"], *extras]
    asked = [Requirement(line) for group in groups for line in group]
    tested = pins("requirements.txt")
    assert {canonicalize_name(each.name) for each in asked} == set(tested) - {"setuptools", "wheel"}
    for each in asked:
        assert each.specifier.contains(tested[canonicalize_name(each.name)]), each


def test_versions_agree():
    assert project()["dynamic"] == ["version"]
    for name, where in (("CITATION.cff", "\nversion: {}\n"), ("CHANGELOG.md", "\n## [{}] - ")):
        assert where.format(mlem_core.__version__) in (ROOT / name).read_text("utf-8")


def set_up(folder, python):
    """Exit code of the set-up and its lines on stderr, with no Python on the PATH but this."""
    programs = folder / "bin"
    for path in [*ROOT.glob("*.txt"), ROOT / "pyproject.toml"]:
        shutil.copy(path, folder)
    shutil.copytree(ROOT / "scripts", folder / "scripts", dirs_exist_ok=True)
    programs.mkdir(exist_ok=True)
    for tool in ("sh", "dirname", "cat", "rm", "mkdir", "grep", "sleep"):
        if not (programs / tool).exists():
            (programs / tool).symlink_to(shutil.which(tool) or tool)
    if python:
        (programs / "python3").write_text(f"#!{programs}/sh\n{python}\n")
        (programs / "python3").chmod(0o755)
    asked, env = [programs / "sh", "scripts/setup.sh"], {"PATH": str(programs)}
    done = subprocess.run(asked, cwd=folder, env=env, stderr=subprocess.PIPE, text=True, timeout=30)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("python", ["", "exit 1", 'case "$2" in *ensurepip*) exit 1;; esac'])
def test_what_python_lacks_is_said_in_one_line(tmp_path, python):
    code, (said,) = set_up(tmp_path, python)
    lacks = "python3 lacks its venv module" if "ensurepip" in python else "no Python 3.11 or newer"
    assert code == 1 and lacks in said
    assert set_up(tmp_path, python) == (1, [said])  # nothing in the way of a second try


def test_every_public_name_is_there_and_documented():
    for name in mlem_core.__all__:
        # What a dataclass writes for itself is no documentation.
        said = getattr(mlem_core, name).__doc__
        assert name in dir(mlem_core) and said and not said.startswith(f"{name}("), name


LIGHT = """
import importlib, os, pkgutil, sys, mlem_core
from mlem_core.cli.commands import main
assert main(sys.argv[1:]) == 0
print(*sorted({"sklearn", "scipy.stats"} & set(sys.modules)), file=sys.stderr)
network = "mlem_core.representations.bidirectional"  # imported where a model is opened
for module in pkgutil.walk_packages(mlem_core.__path__, "mlem_core."):
    if module.name != network:
        importlib.import_module(module.name)
heavy = {"torch", "transformers", "streamlit", "torchsort", "kaleido"}
print(*sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.slow
def test_an_analysis_waits_for_no_heavy_import_and_no_module_has_one(planted, tmp_path):
    given = ["analyze", *arguments_of(planted.spec), "--out", str(tmp_path / "found")]
    asked = [sys.executable, "-c", LIGHT, *given]
    env = {**os.environ, "MLEM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(asked, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == ["", ""]


UNSAFE = (
    r"allow_pickle\s*=\s*True|\btorch\.load\(|\bpickle\.loads?\(|trust_remote_code\s*=\s*True|"
    r"unsafe_allow_(html|javascript)\s*=\s*True|\bshell\s*=\s*True"
)


def test_no_unsafe_calls_and_no_streamlit_in_the_core():
    folders = ("mlem_core", "pages", "scripts", "benchmarks", "grammars")
    code = [*ROOT.glob("*.py"), *(p for folder in folders for p in ROOT.glob(f"{folder}/**/*.py"))]
    assert code
    for path in code:
        text = path.read_text("utf-8")
        assert not re.search(UNSAFE, text), path
        if path.is_relative_to(ROOT / "mlem_core"):
            assert not re.search(r"^\s*(import|from) streamlit\b", text, re.MULTILINE), path
