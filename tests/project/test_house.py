"""The house stays small: sizes, import levels and words have limits."""

import ast
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
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
    """Parameters but of kernels, and of estimators' constructors, which scikit-learn names."""
    long: list[str] = []
    modules = [*ROOT.glob("mlem_core/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "app.py"]
    assert len(modules) > 200
    for path in modules:
        text, name = path.read_text("utf-8"), str(path.relative_to(ROOT))
        tree = ast.parse(text)
        said = ast.get_docstring(tree)
        assert said and said.splitlines()[0].endswith((".", ":", "?")), name
        long += [name] * (len(text.splitlines()) > 450)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            most = 150 if isinstance(node, ast.ClassDef) else 80
            if node.end_lineno - node.lineno + 1 > most:
                long.append(f"{name} {node.name}")
            exempt = "pairs/kernels" in name or ("estimators/" in name and node.name == "__init__")
            if isinstance(node, ast.ClassDef) or exempt:
                continue
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            if len({one.arg for one in arguments} - {"self", "cls"}) > 6:
                long.append(f"{name} {node.name}: parameters")
    assert not long


def test_a_public_name_is_defined_once():
    """But for a figure of figures/ and what report/ says of it: they have one name."""
    homes: dict[str, set[str]] = {}
    for path in [*ROOT.glob("mlem_core/**/*.py"), *ROOT.glob("pages/**/*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("mlem_core/figures/", "mlem_core/report/")):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_":
                homes.setdefault(node.name, set()).add(name)
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_a_package_has_at_most_five_levels(graph):
    for package in PACKAGES:
        inside = {name for name in graph.modules if name.startswith(f"mlem_core.{package}.")}
        imports = {name: graph.find_modules_directly_imported_by(name) & inside for name in inside}
        assert max(levels(imports).values(), default=0) <= 5, package


def test_the_packages_stand_on_at_most_twelve_levels(graph):
    def room(module):
        return ".".join(module.split(".")[:2]) if module.startswith("mlem_core.") else "pages"

    imports: dict[str, set[str]] = {}
    for name in graph.modules - {"mlem_core"}:
        imported = graph.find_modules_directly_imported_by(name) - {"mlem_core"}
        imports.setdefault(room(name), set()).update(room(other) for other in imported)
    assert max(levels({k: v - {k} for k, v in imports.items()}).values()) <= 12
