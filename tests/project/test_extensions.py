"""The program without one of its extensions, and an extension that an installed package brings."""

import os
import re
import shutil
import sys

import numpy as np
import pytest
from helpers.commands import inputs_in, output_of
from helpers.repository import ROOT
from scipy.spatial.distance import pdist

from mlem_core import extending


def run_python(folder, *arguments, **environment):
    """Output of Python in a folder with the program."""
    path = os.pathsep.join(str(folder / name) for name in (".", "tests"))
    around = {**os.environ, "PYTHONPATH": path, **environment}
    return output_of(sys.executable, *arguments, cwd=folder, env=around)


def test_the_list_names_every_folder():
    folders = {path.parent.name for path in (ROOT / "mlem_core/extensions").glob("*/__init__.py")}
    assert {*extending.BUILT_IN} == folders == {*extending.extensions()}


@pytest.mark.slow
@pytest.mark.parametrize("absent", extending.BUILT_IN)
def test_the_program_does_without_any_one_extension(absent, tmp_path):
    cache = str(tmp_path / "cache")
    run_python(ROOT, "-m", "helpers.without_extension", absent, tmp_path, MLEM_CACHE=cache)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({"decoding", "erasure"} & {*extending.BUILT_IN}))
def test_an_extension_is_deleted_by_three_paths_and_a_line(name, tmp_path):
    copy = tmp_path / "copy"
    for part in ("mlem_core", "pages", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("app.py", "pyproject.toml"):
        shutil.copy(ROOT / file, copy / file)
    shutil.rmtree(copy / "mlem_core" / "extensions" / name)
    shutil.rmtree(copy / "tests" / "extensions" / name)
    record = extending.extensions()[name]
    drawn = [panel.show.partition(":")[0] for panel in record.panels if panel.show]
    for file in [screen.file for screen in record.screens] + [
        f"{at.replace('.', '/')}.py" for at in drawn
    ]:
        (copy / file).unlink()
    listed = copy / "mlem_core" / "extending.py"
    lines = listed.read_text("utf-8").splitlines(keepends=True)
    listed.write_text("".join(line for line in lines if line.strip() != f'"{name}",'), "utf-8")
    cache = str(tmp_path / "cache")
    assert name not in run_python(copy, "-m", "mlem_core", "extensions", MLEM_CACHE=cache)
    out = tmp_path / "out"
    run_python(
        copy, "-m", "mlem_core", "analyze", *inputs_in(tmp_path), "--out", out, MLEM_CACHE=cache
    )
    assert (out / "scores.csv").is_file()


def blocks_of(page):
    """The blocks of code of a page, in their order."""
    return re.findall(r"^```(?:toml|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_extension_of_the_docs_is_installed_and_runs(tmp_path):
    inputs = inputs_in(tmp_path)
    package = tmp_path / "package"
    (package / "mlem_pearson").mkdir(parents=True)
    modules = ("__init__", "similarity", "figure", "command")
    files = ("pyproject.toml", *(f"mlem_pearson/{module}.py" for module in modules))
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    for name, text in zip(files, blocks_of(page), strict=True):
        (package / name).write_text(text, "utf-8")
    site = tmp_path / "site"
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run_python(ROOT, *pip, "--target", site, package)
    around = {"MLEM_CACHE": str(tmp_path / "cache"), "MLEM_SITE": str(site)}
    start = "import os, sys; sys.path.append(os.environ['MLEM_SITE']); "
    command = start + "from mlem_core.cli.commands import main; sys.exit(main(sys.argv[1:]))"
    assert "pearson: How the distances" in run_python(ROOT, "-c", command, "extensions", **around)
    said = run_python(ROOT, "-c", command, "pearson", "m:0", "m:1", *inputs, **around)
    arrays = np.load(inputs[3].partition("=")[2])
    one, other = (pdist(arrays[name]) for name in sorted(arrays))
    assert float(said) == pytest.approx(np.corrcoef(one, other)[0, 1], abs=1e-5)
    known = "assert {'pearson_matrix', 'why_pearson'} <= {*FIGURES}"
    look = f"from mlem_core.figures.context import FIGURES; {known}"
    run_python(ROOT, "-c", start + look, **around)
