"""Many visitors of one server: each has what is theirs, as much as is allowed, and fair turns."""

from __future__ import annotations

import os
import runpy
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import in_files, noise, refused, words
from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import each, stopped_by
from mlem_core.base.shared import Shared, shared
from mlem_core.models import offer, places
from mlem_core.models.registry import ModelUnavailable, locate
from mlem_core.storage.files import write_json
from mlem_core.storage.store import Store
from mlem_core.tasks import (
    analyses,
    limits,
    notes,
    processes,
    queue,
    runner,
    signing,
    trash,
    uploads,
    visitors,
)
from mlem_core.tasks.runner import Task
from pages.parts import wording

HERE = Path(__file__).parent
Settings = Callable[..., None]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Makes a shared server's settings of lines of TOML."""

    def write(*lines: str) -> None:
        path = tmp_path / f"shared-{time.time_ns()}.toml"
        path.write_text("\n".join(lines))
        monkeypatch.setenv("MLEM_SHARED", str(path))

    write()
    return write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Store(tmp_path / "store").root


def fresh(root: Path, *address: str) -> Store:
    """The store of a new visitor."""
    return visitors.store_of(visitors.new_token(root), root, *address)


@pytest.fixture
def two(settings: Settings, root: Path) -> tuple[Store, Store]:
    return fresh(root), fresh(root)


def finished(store: Store, *, stimuli: bytes = b"sentence,f\na b,1\n") -> str:
    """An analysis of an upload that counts as done; what it found plays no part here."""
    spec = AnalysisSpec(
        stimuli=str(analyses.keep_upload(stimuli, "mine.csv", store)),
        representations=(("brain", str(uploads.keep([("v1.npy", b"1")], store))),),
        models=(),
    )
    job = store.root / "jobs" / analyses.job_id(spec)
    (job / "result").mkdir(parents=True)
    (job / "result" / "found").write_text("numbers")
    write_json(job / "spec.json", spec.to_dict())
    return job.name


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (["nonsense = 1"], ["unknown", "'nonsense'"]),
        (["upload = 1"], ["did you mean upload"]),
        (["hub = 1"], ["true or false"]),
        (["models = 'x'", "models = [1]", "[models]"], ["list of folders"]),
        (["models = ['nowhere']"], ["no folder", "nowhere"]),
        (["minutes = 0", "minutes = nan", "minutes = true"], ["minutes", "above 0"]),
        (["memory_gb = '8'"], ["memory_gb", "above 0"]),
        (["runs_at_once = 1.5", "runs_each = -1", "runs_address = 0"], ["runs_", "whole number"]),
        (["proxies = ['here']", "proxies = '10.0.0.1'", "proxies = 1"], ["list of addresses"]),
        (["a b"], ["TOML"]),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(
    settings: Settings, lines: list[str], facts: list[str]
) -> None:
    for line in lines:
        settings(line)
        with refused(*facts):
            shared()


def test_settings_are_read_and_the_others_are_as_the_docs_say(settings: Settings) -> None:
    settings("upload_mb = 5", "hub = true")
    assert shared() == replace(Shared(), upload_mb=5, hub=True)
    text = (HERE.parents[1] / "docs" / "security.md").read_text("utf-8")
    lists = {"models": "[]", "hub": "false", "proxies": '["127.0.0.1", "::1"]'}
    for name, value in vars(Shared()).items():
        said = lists.get(name) or f"{value:,}".replace(",", "_")
        assert f"| `{name}` | `{said}` |" in text, name


def test_without_the_switch_nothing_is_limited(root: Path) -> None:
    assert shared() is None
    store = Store(root / "visitors" / "somebody")
    assert analyses.keep_upload(b"x" * 10, "a.csv", store).is_file()


PATHS = [
    "/", "/etc", "/etc/passwd", "/nowhere", "~", "~root", "~/x", ".", "..", "./x", "../x",
    "../../etc", "a/../../etc", "models/../x/y", "a\\b", "\\\\host\\x", "C:\\x", "file:///etc",
    "x\0y", "/etc\0", "//host/x", "/proc/self/environ", "/dev/zero", "a/b/c", "~nobody/x",
]  # fmt: skip


def test_a_path_is_one_sentence_whether_it_exists_or_not(settings: Settings) -> None:
    said = set()
    for name in PATHS:
        for control in ("", "@random", "@random7"):
            with pytest.raises(InputError) as error:
                locate(name + control)
            said.add(str(error.value).replace(repr(name), "NAME"))
            looked = offer.look_up(name + control)
            assert (looked.where, looked.problem) == ("nowhere", str(error.value))
    (sentence,) = said
    assert "NAME" in sentence and "path" in sentence and "\n" not in sentence


def test_a_folder_below_the_current_one_is_no_model(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is there nor what is not tells itself from the other."""
    (tmp_path / "here" / "secret").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    said = []
    for name in ("here/secret", "here/nothing"):
        with pytest.raises(ModelUnavailable) as error:
            locate(name)
        said.append(str(error.value).replace(name, "NAME"))
    assert said[0] == said[1]


def test_models_of_the_settings_have_names(settings: Settings, tmp_path: Path) -> None:
    for name in ("ours", "other", "no-model"):
        (tmp_path / "models" / name).mkdir(parents=True)
    for name in ("ours", "other"):
        (tmp_path / "models" / name / "config.json").write_text("{}")
    settings("models = ['models']")
    assert places.offered() == ["other", "ours"]
    assert places.place_of("ours") == tmp_path / "models" / "ours"
    assert locate("ours").folder == tmp_path / "models" / "ours"
    assert places.place_of("no-model-at-all") is None


def test_a_visitor_finds_nothing_of_another(two: tuple[Store, Store]) -> None:
    first, second = two
    job_id = finished(first)
    notes.change(job_id, first, lambda old: old.noted("mine"))
    assert analyses.find(job_id, first) is not None
    assert [job.id for job in analyses.recent(second)] == ["example"]
    there = first.root.relative_to(first.root.parent)
    for name in (job_id, f"../../{there}/jobs/{job_id}", str(first.root / "jobs" / job_id)):
        assert analyses.find(name, second) is None
    assert notes.read(job_id, second).note == ""
    with refused():
        notes.read(f"../../{there}/notes/{job_id}", second)
    with refused("not in the store"):
        trash.delete(job_id, "", second)
    assert analyses.find(job_id, first) is not None
    # The same upload of both is kept for each, so that nobody hears that it was there before.
    paths = [analyses.keep_upload(b"same", "a.csv", store) for store in two]
    assert paths[0] != paths[1]


def test_a_token_cannot_be_guessed_and_is_not_on_the_disk(root: Path, settings: Settings) -> None:
    tokens = {visitors.new_token(root) for _ in range(1000)}
    assert len(tokens) == 1000 and all(visitors.TOKEN.fullmatch(one) for one in tokens)
    token = tokens.pop()
    store = visitors.store_of(token, root)
    assert token not in str(store.root)
    for other in ("", "..", "../x", token[:-1], f"{token}a", f"{token[:-1]}/", f"{token}\n"):
        with refused():
            visitors.store_of(other, root)
    assert [folder.name for folder in (root / "visitors").iterdir()] == [store.root.name]


def test_only_tokens_that_this_server_has_given_are_visitors(root: Path, tmp_path: Path) -> None:
    token, other = (visitors.new_token(one) for one in (root, tmp_path / "other"))
    secret, _, signed = token.partition(".")
    assert visitors.is_given(token, root)
    invented = visitors._new_secret()
    for wrong in (other, secret, invented, f"{invented}.{signed}", f"{invented}.{invented}", "ä"):
        assert not visitors.is_given(wrong, root), wrong
        with refused("none that this server has given"):
            visitors.store_of(wrong, root)
    assert not (root / "visitors").exists()
    signing._secret.cache_clear()  # as in a process that starts
    assert visitors.is_given(token, root)
    assert (root / "server.key").stat().st_mode & 0o077 == 0
    # Whoever has a store came with a token that was given, before tokens were signed as well.
    Store(visitors._store(secret, root))
    assert visitors.is_given(secret, root)
    stays = visitors.store_of(token, root)
    (root / "server.key").write_bytes(b"damaged")
    signing._secret.cache_clear()
    assert visitors.store_of(token, root).root == stays.root
    assert visitors.is_given(visitors.new_token(root), root)


def test_a_link_shows_one_analysis_and_none_of_the_notes(
    two: tuple[Store, Store], root: Path
) -> None:
    first, second = two
    job_id = finished(first)
    other = finished(first, stimuli=b"sentence,f\nc d,1\n")
    notes.change(job_id, first, lambda old: old.noted("mine"))
    secret = visitors.share(job_id, first)
    assert visitors.share(job_id, first) == secret
    assert visitors.take(secret, second) == job_id
    job = analyses.find(job_id, second)
    assert job is not None and (job.result / "found").read_text() == "numbers"
    assert notes.read(job_id, second).note == "" and analyses.find(other, second) is None
    files = [Path(job.spec.stimuli), Path(job.spec.representations[0][1])]
    assert all(path.is_relative_to(second.root) and path.is_file() for path in files)
    # What becomes of it here or there is of no concern to the other.
    trash.delete(job_id, "", first)
    trash.purge(first, days=-1)
    assert all(path.is_file() for path in files) and job.result.is_dir()
    third = fresh(root)
    with refused("to no analysis"):
        visitors.take(secret, third)


def test_what_was_taken_reads_its_own_files_when_its_owner_s_are_gone(
    two: tuple[Store, Store], tmp_path: Path
) -> None:
    first, second = two
    table = words(12)
    made = in_files(tmp_path, table, {"brain": noise(len(table))}, folds=3)
    ((_, path),) = made.representations
    paths = [analyses.keep_upload(Path(one).read_bytes(), Path(one).name, first)
             for one in (made.stimuli, path)]  # fmt: skip
    spec = replace(made, stimuli=str(paths[0]), representations=(("brain", str(paths[1])),))
    job = first.root / "jobs" / analyses.job_id(spec)
    job.mkdir(parents=True)
    write_json(job / "spec.json", spec.to_dict())
    assert runner.carry_out(job, analyses.make) == 0
    assert visitors.take(visitors.share(job.name, first), second) == job.name
    shutil.rmtree(first.root)
    taken = analyses.find(job.name, second)
    assert taken is not None
    analysis = taken.analysis()
    assert str(first.root) not in str(analysis.spec)
    source = representations_of(analysis, "brain", second)
    assert len(source[0]) == len(table)


def test_a_link_that_was_taken_back_or_guessed_shows_nothing(two: tuple[Store, Store]) -> None:
    first, second = two
    job_id = finished(first)
    secret = visitors.share(job_id, first)
    for wrong in ("", job_id, secret[:-1], secret + "x", "../" + secret, visitors._new_secret()):
        with refused("to no analysis"):
            visitors.take(wrong, second)
    visitors.unshare(job_id, first)
    with refused("to no analysis"):
        visitors.take(secret, second)
    assert analyses.find(job_id, second) is None
    assert visitors.share(job_id, first) != secret


def test_only_what_is_done_is_shown_to_others(two: tuple[Store, Store]) -> None:
    for job_id in ("0" * 16, "../x"):
        with refused("is done"):
            visitors.share(job_id, two[0])


def old(path: Path, days: float) -> None:
    then = time.time() - days * visitors.DAY
    os.utime(path, (then, then))


def test_uploads_go_with_the_last_analysis_of_them(two: tuple[Store, Store]) -> None:
    store = two[0]
    job_id = finished(store)
    unused = analyses.keep_upload(b"unused", "b.csv", store)
    young = analyses.keep_upload(b"young", "c.csv", store)
    for folder in (store.root / "uploads").iterdir():
        old(folder, 0 if folder == young.parent else 2)
    visitors.purge_uploads(store, days=1)
    assert not unused.exists() and young.exists()
    job = analyses.find(job_id, store)
    assert job is not None and Path(job.spec.stimuli).is_file()
    deleted = trash.delete(job_id, "", store)
    visitors.purge_uploads(store, days=1)
    assert Path(job.spec.stimuli).is_file()  # Undo brings the whole analysis back
    trash.restore(deleted, store)
    trash.delete(job_id, "", store)
    trash.purge(store, days=-1)
    visitors.purge_uploads(store, days=1)
    assert [path.name for path in (store.root / "uploads").rglob("*.*")] == ["c.csv"]


def test_a_visitor_who_stays_away_is_forgotten(root: Path, settings: Settings) -> None:
    stores = {name: fresh(root) for name in "abcd"}
    for name in "abc":
        finished(stores[name])
    secret = visitors.share(next((stores["a"].root / "jobs").glob("*/")).name, stores["a"])
    for name, days in {"a": 31, "b": 29, "d": 2}.items():
        old(stores[name].root / "seen", days)
    visitors.sweep(root, days=30)
    there = {name for name, store in stores.items() if store.root.exists()}
    assert there == {"b", "c"}
    with refused():
        visitors.take(secret, stores["b"])
    assert not list((root / "links").iterdir()) and not list((root / "unfinished").iterdir())


def test_uploads_are_limited_one_by_one_and_in_all(root: Path, settings: Settings) -> None:
    settings("upload_mb = 0.001", "uploads_mb = 0.0025")
    store = fresh(root)
    with refused("0.001 MB"):
        analyses.keep_upload(b"x" * 1001, "a.csv", store)
    for n in range(2):
        analyses.keep_upload(bytes([n]) * 1000, "a.csv", store)
    with refused("0.0025 MB"):
        analyses.keep_upload(b"2" * 1000, "a.csv", store)
    other = fresh(root)
    assert analyses.keep_upload(b"2" * 1000, "a.csv", other).is_file()


def test_uploads_go_from_memory_with_their_window(monkeypatch: pytest.MonkeyPatch) -> None:
    server = runpy.run_path(str(HERE.parents[1] / "scripts" / "shared_server.py"))
    files = MemoryUploadedFileManager("/uploads")
    for window in ("open", "closed", "other"):
        files.add_file(window, UploadedFileRec("1", "a.csv", "text/csv", b"sentence"))
    now = SimpleNamespace(uploaded_file_mgr=files, is_active_session="open".__eq__)
    monkeypatch.setattr(runtime, "exists", lambda: True)
    monkeypatch.setattr(runtime, "get_instance", lambda: now)

    async def page(*connection: object) -> None:
        assert len(files.file_storage) == 3

    connected = server["Uploads"](page)({"type": "websocket", "path": "/"}, None, None)
    with pytest.raises(StopIteration):  # it waits for nothing, and needs no loop
        connected.send(None)
    assert [*files.file_storage] == ["open"] and len(files.file_storage["open"]) == 1


def test_all_visitors_together_fill_so_much_of_the_disk(
    two: tuple[Store, Store], settings: Settings
) -> None:
    first, second = two
    settings("disk_all_gb = 0.000003")
    job_id = finished(first)
    secret = visitors.share(job_id, first)
    assert analyses.keep_upload(b"x" * 3000, "a.csv", first).is_file()
    with refused("all visitors", "3e-06 GB"):
        analyses.keep_upload(b"y", "b.csv", second)
    with refused("all visitors", "3e-06 GB"):
        visitors.take(secret, second)
    with refused("all visitors", "3e-06 GB"):
        limits.check_run(second.root, 0, 0)
    shutil.rmtree(first.root / "uploads")
    assert analyses.keep_upload(b"y", "b.csv", second).is_file()


@pytest.fixture
def work(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Starts idle work of a visitor; ends all of it."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    tasks: list[Task] = []

    def start(store: Store, name: str, **request: object) -> Task:
        task = Task(name, store.root / "jobs" / name)
        task.start({"began": str(tmp_path / "began"), **request}, "idle_work")
        tasks.append(task)
        return task

    yield start
    for task in tasks:
        task.cancel()


def until(task: Task, *states: str, seconds: float = 60) -> runner.Status:
    end = time.monotonic() + seconds
    while (status := task.status()).state not in states:
        assert time.monotonic() < end, status
        time.sleep(0.05)
    return status


@pytest.mark.parametrize(
    ("line", "request_", "says"),
    [
        ("memory_gb = 0.4", {"bytes": 600_000_000, "seconds": 30}, "more than 0.4 GB of memory"),
        ("minutes = 0.02", {"seconds": 30}, "more than 0.02 minutes"),
    ],
)
def test_a_run_that_takes_too_much_ends_with_a_sentence(
    settings: Settings, root: Path, work: Callable, line: str, request_: dict, says: str
) -> None:
    settings(line)
    task = work(fresh(root), "greedy", **request_)
    status = until(task, "failed", "done")
    assert says in status.message and status.message.endswith(".")
    assert processes.gone(task.folder, 10) and not list(task.folder.glob("unfinished-*"))
    # One's own server lets it.
    own = work(Store(root), "own", **{**request_, "seconds": 0})
    until(own, "done")


def test_visitors_have_their_turns_one_after_the_other(
    settings: Settings, tmp_path: Path, two: tuple[Store, Store], work: Callable
) -> None:
    settings("runs_each = 3")
    a, b = two
    go = tmp_path / "go"
    first = work(a, "a0", go=str(go))
    until(first, "running")
    later = [work(*one, go=str(go)) for one in ((a, "a1"), (a, "a2"), (b, "b0"), (b, "b1"))]
    with refused("3 runs of yours wait or run"):
        work(a, "a3")
    assert not (a.root / "jobs" / "a3" / "pid.json").exists()
    end = time.monotonic() + 60
    expected = {"b0": 1, "a1": 2, "b1": 3, "a2": 4}
    # Each process says itself that it waits, or nothing yet.
    while {task.id: task.status().before for task in later} != expected:
        assert time.monotonic() < end, {task.id: task.status() for task in later}
        time.sleep(0.05)
    # Whoever cancels cancels what is theirs; the others go on.
    Task("b1", a.root / "jobs" / "b1").cancel()
    assert later[3].status().state == "queued"
    later[3].cancel()
    assert [task.status().state for task in later] == ["queued", "queued", "queued", "cancelled"]
    go.touch()
    for task in (first, *later[:3]):
        until(task, "done")
    assert (tmp_path / "began").read_text().split() == ["a0", "b0", "a1", "a2"]


def test_so_many_run_at_once_as_the_settings_say_and_one_of_each(
    settings: Settings, tmp_path: Path, two: tuple[Store, Store], work: Callable
) -> None:
    settings("runs_at_once = 2")
    a, b = two
    go = tmp_path / "go"
    tasks = [work(*one, go=str(go)) for one in ((a, "a0"), (a, "a1"), (b, "b0"))]
    until(tasks[0], "running")
    until(tasks[2], "running")
    assert tasks[1].status().state == "queued"
    go.touch()
    until(tasks[1], "done")


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd")), st.data())
def test_nobody_waits_for_the_second_turn_of_another(
    waiting: list[str], running: list[str], data: st.DataObject
) -> None:
    """Beside rules said one by one: each owner's in order of arrival, and turns even out."""
    served = data.draw(st.dictionaries(st.sampled_from("abcd").map(Path), st.floats(1, 9)))
    asked = [
        queue.Waiting(Path(owner), (n, f"t{n}"), Path(f"{owner}/t{n}"))
        for n, owner in enumerate(waiting)
    ]
    order = queue.in_turn(asked[::-1], [Path(one) for one in running], served)
    assert sorted(order) == sorted(one.folder for one in asked)
    had = Counter(Path(one) for one in running)
    left = Counter(one.owner for one in asked)
    for folder in order:
        owner = folder.parent
        # Nobody else who still waits has had fewer turns.
        assert had[owner] == min(had[one] for one in left if left[one])
        had[owner] += 1
        left[owner] -= 1
    for owner in left:
        own = [int(folder.name[1:]) for folder in order if folder.parent == owner]
        assert own == sorted(own)


def test_who_is_new_each_time_waits_behind_who_waits(
    settings: Settings, root: Path, two: tuple[Store, Store]
) -> None:
    """Of those who never had a turn, who came first goes first."""
    waits, ran = two
    for minutes, store in ((60, waits), (90, ran)):
        old(store.root / "jobs" / queue._SERVED, minutes / 1440)
    queue.serve(ran.root / "jobs")
    time.sleep(0.02)  # file systems tell times some milliseconds apart
    others = [fresh(root) for _ in range(3)]
    owners = [store.root / "jobs" for store in (*others, ran, waits)]
    waiting = [queue.Waiting(own, (at, "run"), own / "run") for at, own in enumerate(owners)]
    served = queue.last_served(queue.owners(waits.root / "jobs"))
    order = [folder.parent for folder in queue.in_turn(waiting, [], served)]
    assert order == [waits.root / "jobs", ran.root / "jobs", *owners[:3]]
    # To come again is no first visit.
    was = served[waits.root / "jobs"]
    queue.arrive(waits.root / "jobs")
    assert queue.last_served([waits.root / "jobs"]) == {waits.root / "jobs": was}


def test_an_address_has_so_many_runs_whoever_asks(
    settings: Settings, tmp_path: Path, root: Path, work: Callable
) -> None:
    settings("runs_address = 2", "runs_at_once = 1")
    go = tmp_path / "go"
    places = ["2001:db8::1", "2001:db8::2:1", "2001:db8::3", "2001:db8:0:1::1", "::ffff:192.0.2.1"]
    stores = [fresh(root, one) for one in places]
    told = {(store.root / limits.ADDRESS).read_text() for store in stores}
    assert len(told) == 3 and not any("2001" in one or "192" in one for one in told)
    tasks = [work(store, "run", go=str(go)) for store in stores[:2]]
    with refused("2 runs from your network address wait or run"):
        work(stores[2], "run", go=str(go))
    assert not (stores[2].root / "jobs" / "run" / "pid.json").exists()
    tasks.append(work(stores[3], "run", go=str(go)))
    tasks[1].cancel()
    fresh(root, "192.0.2.1")
    assert len(limits.same_address(stores[4].root)) == 2
    tasks.append(work(stores[2], "run", go=str(go)))
    assert [task.status().state == "cancelled" for task in tasks] == [False, True, False, False]


def test_no_path_of_the_machine_is_on_a_screen(
    settings: Settings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(root))
    wording._paths.cache_clear()
    for path, left in {
        root / "visitors" / "ab" / "uploads" / "cd" / "my.csv": "my.csv",
        root / "jobs" / "0a" / "log": "log",
        root: "…",
        HERE: "faults",
        Path.home() / ".cache" / "x": "x",
    }.items():
        for around in ("{}", "see {}", "the file {!r} is", "the file {}: row 3."):
            said = wording.plain(around.format(str(path))).replace("\\", "")
            assert said == around.format(left if "!r" not in around else str(left)), path
    for harmless in ("and/or", "a / b", "state-spaces/mamba-130m-hf", "1/2", "http://a.b/tmp/c"):
        assert wording.plain(harmless).replace("\\", "") == harmless
    wording._paths.cache_clear()


@pytest.mark.parametrize("threads", [1, 2])
def test_what_nobody_waits_for_stops_in_all_threads(threads: int) -> None:
    gone, begun = threading.Event(), []

    class Stopped(BaseException):
        pass

    def look() -> None:
        if gone.is_set():
            raise Stopped

    def work(item: int) -> None:
        begun.append(item)
        if len(begun) == 5:
            gone.set()

    with pytest.raises(Stopped), stopped_by(look):
        each(work, range(1000), threads)
    assert 5 <= len(begun) < 5 + threads
