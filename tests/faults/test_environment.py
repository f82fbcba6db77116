"""Where a program is started: no home, nothing to write to, other encodings, readers that leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import plotly.graph_objects as go
import pytest
from commands import ROOT, analyze, command, contents, inputs_in
from inputs import refused
from permissions import heed_permissions, limited

from mlem_core.figures.export import as_file

SAID = b"Matters most"
TABLES = {"scores.csv", "importance.csv", "weights.csv", "folds.csv", "manifest.json"}


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package and a home that cannot be written; made writable again afterwards."""
    for name in ("site", "home"):
        (tmp_path / name).mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "mlem_core", tmp_path / "site" / "mlem_core", ignore=ignored)
    paths = [tmp_path / "home", *(tmp_path / "site").rglob("*"), tmp_path / "site"]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield tmp_path
    for path in reversed(paths):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.mark.faults
@pytest.mark.parametrize("named", [True, False])
def test_a_read_only_package_and_home(read_only: Path, named: bool) -> None:
    around = {"HOME": str(read_only / "home")} | ({} if named else {"MLEM_CACHE": None})
    site = read_only / "site"
    done = analyze(read_only, package=site, before=heed_permissions, **around)
    assert done.returncode == 0 and SAID in done.stdout, done.stderr.decode()
    assert set(contents(read_only / "work" / "out")) >= TABLES
    left = {path.name for path in (read_only / "tmp").iterdir()}
    assert left == (set() if named else {f"mlem-{os.getuid()}"})
    for folder in (read_only / "tmp").iterdir():
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


WHERE = """
import numba
import mlem_core.pairs.kernels
from mlem_core.base.folders import default_root
print(numba.config.CACHE_DIR or "beside", default_root(), sep="|")
"""


def compiled_and_kept(site: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WHERE],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **environment},
        cwd=site.parent,
        capture_output=True,
        text=True,
        preexec_fn=heed_permissions,
    )
    return done.stdout.strip().split("|") if done.stdout else [done.stderr.splitlines()[-1]]


@pytest.mark.slow
def test_what_is_compiled_is_kept_where_it_can_be(read_only: Path) -> None:
    home, site, temporary = (str(read_only / name) for name in ("home", "site", "tmp"))
    Path(temporary).mkdir()
    own = f"{temporary}/mlem-{os.getuid()}"
    more = {"HOME": home, "TMPDIR": temporary}
    assert compiled_and_kept(ROOT, **more)[0] == "beside"
    named = f"{read_only}/store"
    assert compiled_and_kept(Path(site), **more, MLEM_CACHE=named) == [f"{named}/compiled", named]
    # A store that is only read is one all the same.
    shut = compiled_and_kept(Path(site), **more, MLEM_CACHE=f"{home}/store")
    assert shut == [f"{own}/compiled", f"{home}/store"]
    assert compiled_and_kept(Path(site), **more) == [f"{own}/compiled", own]
    # What others could write is not run.
    Path(own).chmod(0o777)
    (Path(own) / "compiled").chmod(0o777)
    (error,) = compiled_and_kept(Path(site), **more)
    assert "MLEM_CACHE" in error and error.startswith("mlem_core.base.errors.InputError: ")


NOBODY = ("unshare", "-U", "--map-user=12345", "--map-group=12345")


@pytest.mark.slow
@pytest.mark.parametrize("home", [None, "/proc/nowhere"])
def test_a_user_whom_the_system_does_not_know(read_only: Path, home: str | None) -> None:
    if subprocess.run([*NOBODY, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this system lets no process have users of its own")
    done = analyze(
        read_only, package=read_only / "site", through=NOBODY, HOME=home, MLEM_CACHE=None
    )
    assert done.returncode == 0, done.stderr.decode()
    assert set(contents(read_only / "work" / "out")) >= TABLES
    assert [path.name for path in (read_only / "tmp").iterdir()] == ["mlem-12345"]


GB = 2**30
ENOUGH = [
    ("RLIMIT_NOFILE", 16), ("RLIMIT_AS", 3 * GB), ("RLIMIT_DATA", GB), ("RLIMIT_NPROC", 2),
    ("RLIMIT_STACK", 2**18), ("RLIMIT_CORE", 0), ("RLIMIT_MEMLOCK", 0), ("RLIMIT_NICE", 0),
]  # fmt: skip
TOO_LITTLE = [
    ("RLIMIT_NOFILE", 10, "may have 10 open files (ulimit -n); expected at least 16"),
    ("RLIMIT_AS", 2 * GB, "may have 2 GB of addresses (ulimit -v); expected at least 3"),
    ("RLIMIT_DATA", GB // 4, "may have 0.25 GB of memory (ulimit -d); expected at least 1"),
]


@pytest.mark.parametrize(("name", "most", "said"), TOO_LITTLE)
def test_limits_that_are_too_low_are_said(tmp_path: Path, name: str, most: int, said: str) -> None:
    done = command(["--help"], tmp_path, before=limited(name, most))
    assert (done.returncode, done.stderr.decode()) == (2, f"this process {said}.\n")


@pytest.mark.faults
@pytest.mark.parametrize("more", [(), ("--bootstrap", "20")])
@pytest.mark.parametrize(("name", "most"), ENOUGH)
def test_under_low_limits(tmp_path: Path, name: str, most: int, more: tuple[str, ...]) -> None:
    done = analyze(tmp_path, *more, before=limited(name, most))
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["ascii", "latin-1"],
)
def test_names_and_output_in_other_encodings(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff"))
    arguments = ["analyze", *inputs_in(folder), "--out", str(folder / "out")]
    around = {"MLEM_CACHE": str(tmp_path / "store"), **environment}
    done = command([os.fsencode(each) for each in arguments], tmp_path, **around)
    assert (done.returncode, done.stderr) == (0, b"") and SAID in done.stdout
    assert set(contents(folder / "out")) >= TABLES


@pytest.mark.slow
@pytest.mark.parametrize("output", ["closed", "left", "full"])
def test_an_output_that_takes_nothing(tmp_path: Path, output: str) -> None:
    if output == "full" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")

    def before() -> None:
        if output == "closed":
            os.close(1)
        elif output == "left":
            ours, theirs = os.pipe()
            os.dup2(theirs, 1)
            os.close(ours)
        else:
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    done = analyze(tmp_path, before=before)
    assert done.returncode == (2 if output == "full" else 0)
    said = done.stderr.decode()
    assert (said.count("\n") == 1 and "No space left on device" in said) == (output == "full")
    assert bool(said) == (output == "full")
    assert set(contents(tmp_path / "work" / "out")) >= TABLES


def test_a_file_in_the_current_folder_is_not_taken_for_python_s_own(tmp_path: Path) -> None:
    # These Python itself loads before it looks at the program; `python -P` leaves them out too.
    early = {"runpy", "importlib", "pkgutil", "contextlib", "functools", "types"}
    early |= {"warnings", "collections", "re", "enum", "operator", "keyword", "reprlib", "abc"}
    early |= {"copyreg", "inspect", "sitecustomize", "usercustomize", "zipimport"}
    (tmp_path / "work").mkdir()

    def put(names: Iterable[str]) -> None:
        for name in names:
            (tmp_path / "work" / f"{name}.py").write_text(f"raise SystemExit('took {name}.py')")

    others = (*sys.stdlib_module_names, "numpy", "pandas", "cupy", "wordfreq")
    put(name for name in others if name not in early and not name.startswith("_"))
    done = analyze(tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    put(early)
    done = command(["--help"], tmp_path / "work", PYTHONSAFEPATH="1")
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    store, work = tmp_path / "store", tmp_path / "work"
    assert analyze(tmp_path).returncode == 0
    for path in (*store.rglob("*"), store):
        path.chmod(path.stat().st_mode & ~0o222)
    for more, status in ((["--out", "b"], 0), (["--seed", "1", "--out", "c"], 2)):
        done = analyze(tmp_path, *more, before=heed_permissions)
        assert done.returncode == status, done.stderr.decode()
        assert done.stderr.count(b"\n") == (status == 2)
    assert b"MLEM_CACHE" in done.stderr
    assert contents(work / "out") == contents(work / "b") and not (work / "c").exists()
    for path in (store, *store.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_a_signal_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    options = inputs_in(tmp_path / "in")
    for name in ("tmp", "work"):
        (tmp_path / name).mkdir()
    unfinished = tmp_path / "store" / "unfinished"
    around = {"MLEM_CACHE": str(tmp_path / "store"), "TMPDIR": str(tmp_path / "tmp")}
    arguments = ["analyze", *options, "--bootstrap", "1000000", "--out", "out"]
    running = subprocess.Popen(
        [sys.executable, "-m", "mlem_core", *arguments],
        cwd=tmp_path / "work",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **around},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 120
    # The intervals are on their way: the pair tables are there.
    while not any((tmp_path / "store").glob("pair-tables/*")) or not any(unfinished.iterdir()):
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    running.send_signal(number)
    said = running.communicate(timeout=120)[1]
    assert (running.returncode, said) == (status, b"stopped\n")
    assert not any(unfinished.iterdir())
    assert not any((tmp_path / "tmp").iterdir()) and not any((tmp_path / "work").iterdir())


DRAWN = """
import os, signal, sys
import plotly.graph_objects as go
from mlem_core.figures.export import as_file, one_browser
with one_browser():
    as_file(go.Figure(), "png")
    print(*os.listdir(os.environ["TMPDIR"]), flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path that is short enough for a browser's socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_temporary_folder_with_a_long_path_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 80)))
    with refused("62 characters", "TMPDIR"):
        as_file(go.Figure(), "png")


@pytest.mark.slow
def test_what_a_killed_drawing_leaves_goes_with_the_next(tmp_path: Path, short: Path) -> None:
    around = {"PYTHONPATH": str(ROOT), "TMPDIR": str(short)}
    for way, status in (("killed", -signal.SIGKILL), ("ended", 0)):
        # A file: a browser that outlives its killed parent for a while would hold a pipe open.
        with (tmp_path / way).open("wb") as said:
            drawing = subprocess.Popen(
                [sys.executable, "-c", DRAWN, way],
                env={**os.environ, **around},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            assert drawing.wait(120) == status, (tmp_path / way).read_text()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(drawing.pid, signal.SIGKILL)
        assert ".mlem-browser-" in (tmp_path / way).read_text()
    assert not [path for path in short.iterdir() if "mlem" in path.name]
