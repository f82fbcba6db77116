"""The house stays small: sizes, import levels and words have limits."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted([*ROOT.glob("mlem_core/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "app.py"])
PACKAGES = sorted(path.parent.name for path in ROOT.glob("mlem_core/*/__init__.py"))


def definitions(kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, ast.AST]]:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kind):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def lines_of(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def levels(module_imports: dict[str, set[str]]) -> dict[str, int]:
    """On which level each module stands: above all that it imports; level 1 imports nothing."""
    found: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
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
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("mlem_core", "pages", cache_dir=None)


def test_modules_classes_and_functions_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in MODULES
        if (n := len(path.read_text("utf-8").splitlines())) > 450
    }
    assert not long
    assert not [name for name, node in definitions(ast.ClassDef) if lines_of(node) > 150]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert not [name for name, node in definitions(functions) if lines_of(node) > 80]


def test_functions_have_at_most_six_parameters() -> None:
    """But kernels, and the constructors of estimators, whose parameters scikit-learn names."""
    many = []
    for name, node in definitions((ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        own = [one.arg for one in arguments if one.arg not in ("self", "cls")]
        exempt = "pairs/kernels" in name or ("estimators/" in name and node.name == "__init__")
        if len(own) > 6 and not exempt:
            many.append(name)
    assert not many


def test_every_module_says_what_it_is_for() -> None:
    for path in MODULES:
        said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert said and said.splitlines()[0].endswith((".", ":", "?")), path


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest takes the second for the first, and collects neither."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, n in names.items() if n > 1] == ["conftest.py"]


def test_the_top_of_the_core_has_few_entries() -> None:
    entries = [
        path.name
        for path in (ROOT / "mlem_core").iterdir()
        if path.name not in ("__init__.py", "__pycache__")
    ]
    assert len(entries) <= 16, sorted(entries)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_at_most_five_levels(graph: grimp.ImportGraph, package: str) -> None:
    root = f"mlem_core.{package}"
    inside = {name for name in graph.modules if name.startswith(f"{root}.")}
    imports = {
        name: {other for other in graph.find_modules_directly_imported_by(name) if other in inside}
        for name in inside
    }
    assert max(levels(imports).values(), default=0) <= 5


def test_the_packages_stand_on_at_most_twelve_levels(graph: grimp.ImportGraph) -> None:
    def room(module: str) -> str:
        return ".".join(module.split(".")[:2]) if module.startswith("mlem_core.") else "pages"

    imports: dict[str, set[str]] = {}
    for name in graph.modules - {"mlem_core"}:
        imported = graph.find_modules_directly_imported_by(name) - {"mlem_core"}
        imports.setdefault(room(name), set()).update(room(other) for other in imported)
    assert max(levels({k: v - {k} for k, v in imports.items()}).values()) <= 12
