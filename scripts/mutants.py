"""Draw mutants of the numerical packages with a seed, and count those that tests kill.

    pip install --target build/cosmic-ray cosmic-ray      (in no requirements file)
    PYTHONPATH=build/cosmic-ray python scripts/mutants.py draw --n 400 --seed 27
    python scripts/mutants.py run --name before           (goes on where it stopped)
    python scripts/mutants.py run --name after -m "not slow"

A mutant is one changed operator, number, comparison, condition or loop. It is killed where a test
of its package fails, or they take longer than the limit. Annotations, which nothing evaluates,
are not mutated.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "mutants"
PACKAGES = ("pairs", "estimators", "measures", "inference", "data/reading", "storage")
# Names for names, and what is seldom another program.
LEFT_OUT = ("VariableReplacer", "VariableInserter", "RemoveDecorator", "UAdd")
Span = tuple[tuple[int, int], tuple[int, int]]


def annotations(source: str) -> list[Span]:
    """Where annotations and decorators begin and end, as (line, column) pairs."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            found += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in found
        if one is not None
    ]


def places(path: Path) -> dict[Span, list[tuple[str, int]]]:
    """Each place of a module that can be mutated: the operators, and which of theirs it is."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import Visitor, get_ast

    source = path.read_text()
    tree, passed_over = get_ast(source), annotations(source)
    found: dict[Span, list[tuple[str, int]]] = {}
    for name in plugins.operator_names():
        if any(part in name for part in LEFT_OUT):
            continue
        spans: list[Span] = []
        operator = plugins.get_operator(name)()

        class Collect(Visitor):  # type: ignore[misc]
            def visit(self, node: object, its: object = operator, into: list = spans) -> object:  # type: ignore[type-arg]
                into += its.mutation_positions(node)  # type: ignore[attr-defined]
                return node

        Collect().walk(tree)
        for occurrence, (start, stop) in enumerate(spans):
            inside = any(a <= tuple(start) and tuple(stop) <= b for a, b in passed_over)
            if not inside:
                found.setdefault((tuple(start), tuple(stop)), []).append((name, occurrence))
    return found


def draw(n: int, seed: int) -> list[dict[str, str | int]]:
    """That many mutants: a place at random, and one of its mutations at random."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    paths = [p for k in PACKAGES for p in sorted((ROOT / "mlem_core" / k).rglob("*.py"))]
    every = [(path, span, ways) for path in paths for span, ways in sorted(places(path).items())]
    rng = random.Random(seed)
    drawn = []
    for number in sorted(rng.sample(range(len(every)), n)):
        path, ((line, column), _), ways = every[number]
        name, occurrence = rng.choice(ways)
        code = mutate_code(path.read_text(), plugins.get_operator(name)(), occurrence)
        where = f"{path.relative_to(ROOT)}:{line}:{column} {name.partition('/')[2]}"
        drawn.append({"mutant": where, "file": str(path.relative_to(ROOT)), "code": code})
    return drawn


def tests_of(file: str) -> list[str]:
    """The test files of a module's package, those that name the module first."""
    package = file.split("/")[1]
    module = Path(file).stem
    paths = sorted((ROOT / "tests" / package).glob("test_*.py"))
    paths.sort(key=lambda path: f".{module} import" not in path.read_text())
    return [str(path.relative_to(ROOT)) for path in paths]


def survives(copy: Path, mutant: dict[str, str], marks: str, limit: float) -> str:
    """`killed`, `killed by time` or `survived`, of one mutant in a copy of the project."""
    path = copy / mutant["file"]
    before = path.read_text()
    with tempfile.TemporaryDirectory() as kernels:
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        if "/kernels/" in mutant["file"]:
            # A compiled caller keeps the callee that it was compiled with.
            environment["NUMBA_CACHE_DIR"] = kernels
        pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        try:
            path.write_text(mutant["code"])
            ran = subprocess.run(
                [*pytest, "-m", marks, *tests_of(mutant["file"])],
                cwd=copy,
                env=environment,
                capture_output=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return "killed by time"
        finally:
            path.write_text(before)
    return "survived" if ran.returncode == 0 else "killed"


def run(name: str, marks: str, workers: int, limit: float) -> None:
    """Try each mutant that was not tried under this name, and print the shares that are killed."""
    mutants = json.loads((KEPT / "drawn.json").read_text())
    results = KEPT / f"{name}.jsonl"
    done = {}
    if results.exists():
        done = dict(json.loads(line) for line in results.read_text().splitlines())
    left = [mutant for mutant in mutants if mutant["mutant"] not in done]
    copies = [KEPT / f"copy-{k}" for k in range(workers)]
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)
        leave = shutil.ignore_patterns(".git", ".venv", "build", "cache", ".*_cache")
        shutil.copytree(ROOT, copy, ignore=leave, symlinks=True)
    free = list(copies)
    for file in {mutant["file"].split("/")[1]: mutant["file"] for mutant in left}.values():
        same = {"mutant": "none", "file": file, "code": (ROOT / file).read_text()}
        if survives(copies[0], same, marks, limit) != "survived":
            sys.exit(f"without a mutant the tests of {file} fail.")

    def one(mutant: dict[str, str]) -> None:
        copy = free.pop()
        began = time.monotonic()
        said = survives(copy, mutant, marks, limit)
        free.append(copy)
        with results.open("a") as file:
            file.write(json.dumps([mutant["mutant"], said]) + "\n")
        done[mutant["mutant"]] = said
        print(f"{len(done)} {said} {mutant['mutant']} {time.monotonic() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, left))
    by_package: dict[str, Counter[str]] = {}
    for mutant in mutants:
        package = mutant["file"].split("/")[1]
        for key in (package, "all"):
            by_package.setdefault(key, Counter())[done[mutant["mutant"]].split()[0]] += 1
    for package, counts in by_package.items():
        print(f"{package}: {counts['killed']} of {counts.total()} killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--n", type=int, default=400)
    drawing.add_argument("--seed", type=int, default=27)
    running = commands.add_parser("run")
    running.add_argument("--name", default="now")
    running.add_argument("-m", dest="marks", default="not faults")
    running.add_argument("--workers", type=int, default=2)
    running.add_argument("--limit", type=float, default=600.0)
    asked = parser.parse_args()
    if asked.command == "draw":
        KEPT.mkdir(parents=True, exist_ok=True)
        drawn = draw(asked.n, asked.seed)
        (KEPT / "drawn.json").write_text(json.dumps(drawn))
        print("\n".join(str(mutant["mutant"]) for mutant in drawn))
    else:
        run(asked.name, asked.marks, asked.workers, asked.limit)


if __name__ == "__main__":
    main()
