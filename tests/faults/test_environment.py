"""Where and how a program is started: places, encodings, readers that leave, odd command lines."""

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
from helpers.commands import ROOT, analyze, command, contents, inputs_in
from helpers.inputs import for_each
from helpers.permissions import heed_permissions, limited

from mlem_core.cli.commands import main, parser

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
from mlem_core.base.resources import default_root
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


GB = 2**30


@for_each(
    "name, most, said",
    ("RLIMIT_NOFILE", 10, "may have 10 open files (ulimit -n); expected at least 16"),
    ("RLIMIT_AS", 2 * GB, "may have 2 GB of addresses (ulimit -v); expected at least 3"),
    ("RLIMIT_DATA", GB // 4, "may have 0.25 GB of memory (ulimit -d); expected at least 1"),
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


@for_each(
    "number, status",
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    (signal.SIGINT, 130),
)
def test_a_signal_leaves_nothing(tmp_path, number, status):
    running = analyze(
        tmp_path, "--bootstrap", "1000000", by=subprocess.Popen,
        before=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    store = tmp_path / "store"
    end = time.monotonic() + 120
    # The intervals are on their way: the statistics of pairs are there.
    while not any(store.glob("pair-statistics/*")) or not any(store.glob("unfinished/*")):
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    running.send_signal(number)
    said = running.communicate(timeout=120)[1]
    assert (running.returncode, said) == (status, b"stopped\n")
    folders = (store / "unfinished", tmp_path / "tmp", tmp_path / "work")
    assert not [path for folder in folders for path in folder.iterdir()]


@for_each("seconds", 0.05, 0.5, 1.5)
def test_a_signal_at_the_start_leaves_nothing(tmp_path, seconds):
    """Before it is heeded it ends the process by itself; while modules are imported it is."""
    running = analyze(tmp_path, "--bootstrap", "1000000", by=subprocess.Popen)
    time.sleep(seconds)
    running.terminate()
    said = running.communicate(timeout=120)[1]
    assert (running.returncode, said) in ((143, b"stopped\n"), (-signal.SIGTERM, b""))
    folders = (tmp_path / "store" / "unfinished", tmp_path / "tmp", tmp_path / "work")
    assert not [path for folder in folders if folder.exists() for path in folder.iterdir()]


ODD = (
    "", " ", "-1", "0", "1", "nan", "inf", "1e999", "0.5", "9223372036854775808", "1" * 400,
    "1" * 5000, "٣", "a\0b", "x\udcff", "a\nb", "../..", "/dev/null", "/", "x" * 300, "=", "m=",
    "=m", "m:", ":0", "m:-1", "m:99999999999999999999", "0,,1", "-1,0", "all", "none", "%s%n{}",
)  # fmt: skip


def command_options(name):
    return [
        action.option_strings[0]
        for action in parser(None)._subparsers._group_actions[0].choices[name]._actions
        if action.option_strings and action.nargs != 0 and action.dest not in ("help", "cluster")
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    options = inputs_in(folder / "in")
    (folder / "a" / "b").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "a" / "b")
        patch.setenv("MLEM_CACHE", str(folder / "store"))
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
        yield folder, options


def wrongly_taken(arguments, capsys):
    """What is wrong with how a command line was taken; None where nothing is."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:
        capsys.readouterr()
        return f"{type(error).__name__}: {str(error)[:200]}"
    said = capsys.readouterr().err
    if status not in (0, 2) or "Traceback" in said:
        return f"status {status}: {said[:300]}"
    if status == 0:
        return None
    # What was said of the stimuli may stand before it.
    lines = [line for line in said.splitlines() if line]
    ends = (".", "?", "is)")
    wrong = not lines or any(not line.endswith(ends) or len(line) > 1500 for line in lines)
    return f"{len(lines)} lines: {said[:300]!r}" if wrong else None


def tried(home, command, capsys, every=1):
    """What is wrong, by the option and its value; `every` so many are tried."""
    folder, inputs = home
    inside = contents(folder / "in")
    wrong: dict[str, str] = {}
    lines = [(option, value) for option in command_options(command[0]) for value in ODD]
    for option, value in lines[every - 1 :: every]:
        lacks = "--out" in command_options(command[0]) and option != "--out"
        needed = ["--out", "out.csv" if command[0] in ("why", "stimuli") else "out"] * lacks
        given = {"lint": inputs[:2], "stimuli": []}.get(command[0], inputs)
        said = wrongly_taken([*command, *given, *needed, f"{option}={value}"], capsys)
        if said is not None:
            wrong[f"{option}={value[:20]!a}"] = said
    assert contents(folder / "in") == inside
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    return wrong


@for_each("command, every", pytest.param("analyze", 47, marks=pytest.mark.slow), ("lint", 17))
def test_some_odd_values(command, every, home, capsys):
    assert tried(home, [command], capsys, every=every) == {}


def test_what_was_found_odd(home, capsys):
    folder, inputs = home
    analyze, why = ["analyze", *inputs, "--out=o"], ["why", "m:0", "m:1", *inputs]
    for asked, last in (
        *((analyze, f"--{one}") for one in ("seed=-1", "seed=4294967296", "folds=0", "out=",
                                            "out=/dev/null", "out=a\0b")),
        *((why, f"--out={out}") for out in ("", "/dev/null", folder)),
    ):  # fmt: skip
        assert main([*asked, last]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert wrongly_taken([*analyze, f"--bootstrap={2**63}"], capsys) is None
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert not Path("o").exists()


@pytest.mark.faults
@for_each("command", "analyze", "lint", "why", "stimuli", "audit")
def test_odd_values_of_every_option(command, home, capsys):
    before = {
        "why": ["m:0", "m:1"],
        "stimuli": [str(home[0] / "in/words.csv")],
    }
    assert tried(home, [command, *before.get(command, [])], capsys) == {}
    with capsys.disabled():
        print(f"\n{command}: {len(command_options(command)) * len(ODD)} command lines")
