"""Kill work at each call that opens a file to write, renames, removes, makes or syncs.

    python -m helpers.crash SCENARIO,SCENARIO... FOLDER MOST

does each scenario of `SCENARIOS` in FOLDER once, which counts those calls, and then again for each
of them (for MOST of them, evenly, if it is not 0): killed there, and, where a file is opened, once
more in the midst of what is written into it. After each kill it is done anew. Prints a JSON object:
by scenario, how often it was killed, and what was amiss afterwards.

Each time it is a fork of this process, which has done all of it before and so has everything
imported and compiled.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.commands import contents, inputs_in
from mlem_core.base.files import write_json
from mlem_core.cli.commands import main as run_command
from mlem_core.cli.commands import parser
from mlem_core.cli.options import spec_from_options
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, deletion, followups, notes
from mlem_core.tasks.runner import execute

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"}
CHANGES |= {"os.truncate", "os.chmod", "os.utime", "sync"}
# Locks are opened to write and stay empty; a log, and no input, is for another process.
NOT_OURS = (".lock", "/log", os.devnull)
HALF = (".", "tmp0", "unfinished-")  # how names of what is not yet whole begin
SECONDS = 60  # a run that takes longer waits for a lock


@dataclass
class Point:
    """Where a process is killed: at the n-th change, or after so many bytes of that file."""

    at: int = 0
    midway: bool = False
    passed: int = 0
    armed: bool = False
    opens: list[int] = field(default_factory=list)


POINT = Point()
OPTIONS: list[str] = []  # that name the inputs, the same for all work


def passing(event, details):
    """An audit hook: counts what changes files, and ends the process at its point."""
    if not POINT.armed:
        return
    if event == "open":
        path, _, flags = details
        if isinstance(path, int) or not flags & WRITES or str(path).endswith(NOT_OURS):
            return
        POINT.opens.append(POINT.passed + 1)
    elif event not in CHANGES:
        return
    POINT.passed += 1
    if POINT.passed == POINT.at:
        if not POINT.midway:
            os.kill(os.getpid(), signal.SIGKILL)
        # The system ends it at the first byte beyond.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


sys.addaudithook(passing)
_fsync = os.fsync


def _audited(opened):
    sys.audit("sync", opened)
    _fsync(opened)


os.fsync = _audited


@dataclass(frozen=True)
class Scenario:
    """What is done: `before` makes what is there, `act` is killed, and `amiss` says what is wrong.

    Attributes
    ----------
    result : the folders below the work's that must be the same after it was done anew
    """

    act: Callable[[Path], Any]
    before: Callable[[Path], Any] = lambda folder: None
    amiss: Callable[[Path], list[str]] = lambda folder: []
    result: tuple[str, ...] = ("out",)


def _analyze(*more):
    def act(folder):
        own = [each.format(folder) for each in more]
        assert run_command(["analyze", *OPTIONS, *own, "--out", str(folder / "out")]) == 0

    return act


def _of_another_run(folder):
    """The store has everything, and `out` the tables of another run and a file of the user's."""
    _analyze()(folder)
    shutil.rmtree(folder / "out")
    _analyze("--seed", "7", "--bootstrap", "20")(folder)
    (folder / "out" / "mine.txt").write_text("mine")
    (folder / "was").mkdir()
    for path in (folder / "out").iterdir():
        shutil.copy(path, folder / "was" / path.name)


def _no_mixture(folder):
    """Files of both runs in `out`, or a manifest with tables missing."""
    was, out = contents(folder / "was"), contents(folder / "out")
    amiss = [] if out.pop("mine.txt", None) == b"mine" else ["the user's file is gone"]
    old = {name for name, data in out.items() if was.get(name) == data}
    new = {name for name in set(out) - old if not name.startswith(".")}
    # Some tables do not depend on what differs.
    if new and "intervals.csv" in old:
        amiss.append(f"files of two runs: {sorted(old)} and {sorted(new)}")
    return amiss + _whole(folder)


def _whole(folder):
    """A manifest stands beside all of its tables, or not at all."""
    out = folder / "out"
    if not (out / "manifest.json").is_file():
        return []
    named = json.loads((out / "manifest.json").read_bytes())["tables"]
    missing = [name for name in named if not (out / name).is_file()]
    return [f"a manifest without {missing}"] if missing else []


def _work(folder):
    """What a process of the app does for a job."""
    job = folder / "store" / "jobs" / "0123456789abcdef"
    job.mkdir(parents=True, exist_ok=True)
    spec = spec_from_options(parser(None).parse_args(["analyze", *OPTIONS, "--out", "x"]))
    write_json(job / "spec.json", spec.to_dict())
    assert (job / "result").is_dir() or execute(job, followups.make) == 0


def _upload(folder):
    files = [(f"{name}.csv", b"sentence,a\n" + name.encode() * 3000) for name in "abc"]
    analyses.keep_uploads(files[:1], Store(folder / "store"))
    analyses.keep_uploads(files, Store(folder / "store"))


def _deleted(folder):
    store = Store(folder / "store")
    if any((store.root / "jobs").glob("0*/spec.json")):
        deletion.delete("0123456789abcdef", "Mine", store)


def _job(folder):
    _work(folder)
    store = Store(folder / "store")
    notes.change_notes("0123456789abcdef", store, lambda old: old.named("Mine"))
    more = store.root / "jobs" / "fits-1"
    more.mkdir()
    write_json(more / "spec.json", {"analysis": "0123456789abcdef", "options": {}})


def _all_there(folder):
    """In a copy: the analysis is in the list or comes back, with all that belongs to it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as other:
        store = Store(shutil.copytree(folder / "store", Path(other) / "store"))
        whole = {"0123456789abcdef", "fits-1", "0123456789abcdef.json"}

        def there():
            paths = [*(store.root / "jobs").iterdir(), *(store.root / "notes").iterdir()]
            return whole & {path.name for path in paths}

        if (deleted := deletion.last_deleted(store)) is not None:
            deletion.restore(deleted.id, store)
        return [] if there() == whole else [f"neither there nor deleted: {whole - there()}"]


SCENARIOS = {
    "analyze-warm": Scenario(_analyze(), _of_another_run, _no_mixture),
    "bootstrap-warm": Scenario(_analyze("--bootstrap", "20"), _of_another_run, _no_mixture),
    "worker": Scenario(_work, result=("store/jobs/0123456789abcdef/result",)),
    "upload": Scenario(_upload, result=("store/uploads",)),
    "deletion": Scenario(_deleted, _job, _all_there, result=()),
}  # fmt: skip


def forked(call, folder, point):
    """Do it in a fork that ends at a point; how it ended, and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ["MLEM_CACHE"] = str(folder / "store")
            os.environ["TMPDIR"] = str(folder / "tmp")
            tempfile.tempdir = str(folder / "tmp")
            signal.alarm(SECONDS)
            said = io.StringIO()
            POINT.__dict__.update(point.__dict__, armed=True)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                call(folder)
            POINT.armed = False
            os.write(write, json.dumps([POINT.passed, POINT.opens]).encode())
            code = 0
        except BaseException as error:
            POINT.armed = False
            os.write(write, f"{type(error).__name__}: {error}; {said.getvalue()}".encode()[:4000])
        finally:
            os._exit(code)
    os.close(write)
    with open(read, "rb") as said_to_us:
        text = said_to_us.read().decode()
    return os.waitpid(child, 0)[1], text


def fresh(scenario, home):
    """A folder with what is there before, which is made once, in this same place."""
    folder, template = home / "work", home / "before"
    shutil.rmtree(folder, ignore_errors=True)
    if template.exists():
        shutil.copytree(template, folder, symlinks=True)
        return folder
    (folder / "tmp").mkdir(parents=True)
    status, said = forked(scenario.before, folder, Point())
    assert status == 0, said
    shutil.copytree(folder, template, symlinks=True)
    return folder


def left_over(folder):
    """Temporary files and folders anywhere."""
    left = [*(folder / "tmp").iterdir(), *folder.glob("store/unfinished/*")]
    return [*left, *(path for path in folder.rglob("*") if path.name.startswith(HALF))]


def results(scenario, folder):
    return {name: contents(folder / name) for name in scenario.result}


def tried(scenario, home, point, reference):
    """What is amiss after a kill at this point, and after the work is done anew."""
    folder = fresh(scenario, home)
    status, said = forked(scenario.act, folder, point)
    # Status 0: calls that come in another order, or fewer bytes than a file was let have.
    amiss = [f"ended by itself: {said}"] if status else []
    if os.WIFSIGNALED(status):
        amiss = [f"then: {each}" for each in scenario.amiss(folder)]
    began = time.monotonic()
    status, said = forked(scenario.act, folder, Point())
    if status != 0:
        return [*amiss, f"anew: status {status}, {said}, {time.monotonic() - began:.0f} s"]
    amiss += [f"anew: {each}" for each in scenario.amiss(folder)]
    if results(scenario, folder) != reference:
        amiss.append("anew: other results")
    return amiss + [f"left over: {each}" for each in left_over(folder)]


def main(name, home, most):
    scenario = SCENARIOS[name]
    # Here, so that a fork has it: the imports, and what is compiled.
    OPTIONS[:] = inputs_in(home / "in")
    warm = home / "work"
    (warm / "tmp").mkdir(parents=True)
    os.environ["MLEM_CACHE"] = str(warm / "store")
    os.environ["BROWSER_PATH"] = str(home / "none")
    tempfile.tempdir = str(warm / "tmp")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        scenario.before(warm)
        scenario.act(warm)
    folder = fresh(scenario, home)
    status, said = forked(scenario.act, folder, Point())
    assert status == 0, said
    passed, opens = json.loads(said)
    reference = results(scenario, folder)
    points = [Point(at) for at in range(1, passed + 1)] + [Point(at, midway=True) for at in opens]
    if most and len(points) > most:
        points = [points[i * len(points) // most] for i in range(most)]
    amiss = {}
    for point in points:
        if found := tried(scenario, home, point, reference):
            amiss[f"{point.at}{' midway' if point.midway else ''}"] = found
    return {"calls": passed, "kills": len(points), "amiss": amiss}


if __name__ == "__main__":
    names, place, most_kills = sys.argv[1].split(","), Path(sys.argv[2]).resolve(), int(sys.argv[3])
    print(json.dumps({name: main(name, place / name, most_kills) for name in names}))
