"""Where a program is started: no home, nothing to write to, other encodings, readers that leave."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import ROOT, analyze, command, contents, inputs_in
from permissions import heed_permissions, limited

SAID = b"Matters most"
TABLES = {"scores.csv", "importance.csv", "weights.csv", "folds.csv", "manifest.json"}


@contextmanager
def shut(*folders):
    """While this lasts, nothing in the folders can be written."""
    paths = [path for folder in folders for path in (*folder.rglob("*"), folder)]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield
    for path in reversed(paths):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.fixture
def read_only(tmp_path):
    """A copy of the package and a home that cannot be written; made writable again afterwards."""
    for name in ("site", "home"):
        (tmp_path / name).mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "mlem_core", tmp_path / "site" / "mlem_core", ignore=ignored)
    with shut(tmp_path / "home", tmp_path / "site"):
        yield tmp_path


WHERE = """
import numba
import mlem_core.pairs.kernels
from mlem_core.base.folders import default_root
print(numba.config.CACHE_DIR or "beside", default_root(), sep="|")
"""


def compiled_and_kept(site, **environment):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **environment}
    done = subprocess.run(
        [sys.executable, "-c", WHERE], env=env, cwd=site.parent, capture_output=True, text=True,
        preexec_fn=heed_permissions,
    )  # fmt: skip
    return done.stdout.strip().split("|") if done.stdout else [done.stderr.splitlines()[-1]]


@pytest.mark.slow
def test_what_is_compiled_is_kept_where_it_can_be(read_only):
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
@pytest.mark.parametrize("home", [None, pytest.param("/proc/nowhere", marks=pytest.mark.faults)])
def test_a_user_whom_the_system_does_not_know(read_only, home):
    if subprocess.run([*NOBODY, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this system lets no process have users of its own")
    around = {"HOME": home, "MLEM_CACHE": None}
    done = analyze(read_only, package=read_only / "site", through=NOBODY, **around)
    assert done.returncode == 0, done.stderr.decode()
    assert set(contents(read_only / "work" / "out")) >= TABLES
    assert [path.name for path in (read_only / "tmp").iterdir()] == ["mlem-12345"]


GB = 2**30


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("RLIMIT_NOFILE", 10, "may have 10 open files (ulimit -n); expected at least 16"),
        ("RLIMIT_AS", 2 * GB, "may have 2 GB of addresses (ulimit -v); expected at least 3"),
        ("RLIMIT_DATA", GB // 4, "may have 0.25 GB of memory (ulimit -d); expected at least 1"),
    ],
)
def test_limits_that_are_too_low_are_said(tmp_path, name, most, said):
    done = command(["--help"], tmp_path, before=limited(name, most))
    assert (done.returncode, done.stderr.decode()) == (2, f"this process {said}.\n")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def beside_cautions(done):
    """The lines of stderr but for the one on what is uncertain about few stimuli."""
    return [line for line in done.stderr.splitlines() if b"cautions" not in line]


@pytest.mark.slow
@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}])
def test_names_and_output_in_other_encodings(tmp_path, environment):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff"))
    arguments = ["analyze", *inputs_in(folder), "--out", str(folder / "out")]
    around = {"MLEM_CACHE": str(tmp_path / "store"), **environment}
    done = command([os.fsencode(each) for each in arguments], tmp_path, **around)
    assert (done.returncode, beside_cautions(done)) == (0, []) and SAID in done.stdout
    assert set(contents(folder / "out")) >= TABLES


@pytest.mark.slow
@pytest.mark.parametrize("output", ["closed", "left", "full"])
def test_an_output_that_takes_nothing(tmp_path, output):
    if output == "full" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")

    def before():
        if output == "closed":
            os.close(1)
        elif output == "left":
            ours, theirs = os.pipe()
            os.dup2(theirs, 1)
            os.close(ours)
        else:
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    done = analyze(tmp_path, before=before)
    full = output == "full"
    assert (done.returncode, len(beside_cautions(done))) == ((2, 1) if full else (0, 0))
    assert (b"No space left on device" in done.stderr) == full
    assert set(contents(tmp_path / "work" / "out")) >= TABLES


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_read(tmp_path):
    store, work = tmp_path / "store", tmp_path / "work"
    assert analyze(tmp_path).returncode == 0
    with shut(store):
        for more, status in ((["--out", "b"], 0), (["--seed", "1", "--out", "c"], 2)):
            done = analyze(tmp_path, *more, before=heed_permissions)
            assert done.returncode == status, done.stderr.decode()
            assert len(beside_cautions(done)) == (status == 2)
    assert b"MLEM_CACHE" in done.stderr
    assert contents(work / "out") == contents(work / "b") and not (work / "c").exists()


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_a_signal_leaves_nothing(tmp_path, number, status):
    running = analyze(
        tmp_path, "--bootstrap", "1000000", by=subprocess.Popen,
        before=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    store = tmp_path / "store"
    end = time.monotonic() + 120
    # The intervals are on their way: the pair tables are there.
    while not any(store.glob("pair-tables/*")) or not any(store.glob("unfinished/*")):
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    running.send_signal(number)
    said = running.communicate(timeout=120)[1]
    assert (running.returncode, said) == (status, b"stopped\n")
    folders = (store / "unfinished", tmp_path / "tmp", tmp_path / "work")
    assert not [path for folder in folders for path in folder.iterdir()]
