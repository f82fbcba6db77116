"""Many visitors of one server: each has what is theirs, as much as is allowed, and fair turns."""

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import for_each, refused

from mlem_core import AnalysisSpec, InputError, Store
from mlem_core.base.files import write_json
from mlem_core.base.room import Shared, shared
from mlem_core.models import availability
from mlem_core.models.registry import locate
from mlem_core.tasks import analyses, limits, notes, processes, trash, visitors
from mlem_core.tasks.runner import Task
from pages.parts import choices

HERE = Path(__file__).parent


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Makes a shared server's settings of lines of TOML."""

    def write(*lines):
        path = tmp_path / f"shared-{time.time_ns()}.toml"
        path.write_text("\n".join(lines))
        monkeypatch.setenv("MLEM_SHARED", str(path))

    write()
    return write


def fresh(root, *address):
    """The store of a new visitor."""
    return visitors.store_of(visitors.new_token(root), root, *address)


@pytest.fixture
def two(settings, root):
    return fresh(root), fresh(root)


def finished(store, *, stimuli=b"sentence,f\na b,1\n"):
    """An analysis of an upload that counts as done; what it found plays no part here."""
    spec = AnalysisSpec(
        stimuli=str(analyses.keep_upload(stimuli, "mine.csv", store)),
        representations=(("brain", str(analyses.keep_uploads([("v1.npy", b"1")], store))),),
        models=(),
    )
    job = store.root / "jobs" / analyses.job_id(spec)
    (job / "result").mkdir(parents=True)
    (job / "result" / "found").write_text("numbers")
    write_json(job / "spec.json", spec.to_dict())
    return job.name


def test_settings_are_read_and_the_others_are_as_the_docs_say(settings):
    settings("upload_mb = 5", "hub = true")
    assert shared() == replace(Shared(), upload_mb=5, hub=True)
    text = (HERE.parents[1] / "docs" / "security.md").read_text("utf-8")
    lists = {"models": "[]", "hub": "false", "proxies": '["127.0.0.1", "::1"]'}
    for name, value in vars(Shared()).items():
        said = lists.get(name) or f"{value:,}".replace(",", "_")
        assert f"| `{name}` | `{said}` |" in text, name


PATHS = [
    "/", "/etc", "/etc/passwd", "/nowhere", "~", "~root", "~/x", ".", "..", "./x", "../x",
    "../../etc", "a/../../etc", "models/../x/y", "a\\b", "\\\\host\\x", "C:\\x", "file:///etc",
    "x\0y", "/etc\0", "//host/x", "/proc/self/environ", "/dev/zero", "a/b/c", "~nobody/x",
]  # fmt: skip


def test_a_path_is_one_sentence_whether_it_exists_or_not(settings):
    said = set()
    for name in PATHS:
        for control in ("", "@random", "@random7"):
            with pytest.raises(InputError) as error:
                locate(name + control)
            said.add(str(error.value).replace(repr(name), "NAME"))
            looked = availability.look_up(name + control)
            assert (looked.where, looked.problem) == ("nowhere", str(error.value))
    (sentence,) = said
    assert "NAME" in sentence and "path" in sentence and "\n" not in sentence


def test_a_visitor_finds_nothing_of_another(two):
    first, second = two
    job_id = finished(first)
    notes.change_notes(job_id, first, lambda old: old.noted("mine"))
    assert analyses.find(job_id, first) is not None
    assert [job.id for job in analyses.recent(second)] == ["example"]
    there = first.root.relative_to(first.root.parent)
    for name in (job_id, f"../../{there}/jobs/{job_id}", str(first.root / "jobs" / job_id)):
        assert analyses.find(name, second) is None
    assert notes.read_notes(job_id, second).note == ""
    with refused():
        notes.read_notes(f"../../{there}/notes/{job_id}", second)
    with refused("not in the store"):
        trash.delete(job_id, "", second)
    assert analyses.find(job_id, first) is not None
    # The same upload of both is kept for each, so that nobody hears that it was there before.
    paths = [analyses.keep_upload(b"same", "a.csv", store) for store in two]
    assert paths[0] != paths[1]


def test_a_token_cannot_be_guessed_and_is_not_on_the_disk(root, settings):
    tokens = {visitors.new_token(root) for _ in range(1000)}
    assert len(tokens) == 1000 and all(visitors.TOKEN.fullmatch(one) for one in tokens)
    token = tokens.pop()
    store = visitors.store_of(token, root)
    assert token not in str(store.root)
    assert [folder.name for folder in (root / "visitors").iterdir()] == [store.root.name]


def test_only_tokens_that_this_server_has_given_are_visitors(root, tmp_path):
    token, other = (visitors.new_token(one) for one in (root, tmp_path / "other"))
    secret, _, signed = token.partition(".")
    assert visitors.is_given(token, root)
    invented = "a" * 43
    for wrong in (
        other, secret, invented, f"{invented}.{signed}", f"{invented}.{invented}", "ä", "", "..",
        "../x", token[:-1], f"{token}a", f"{token[:-1]}/", f"{token}\n",
    ):  # fmt: skip
        assert not visitors.is_given(wrong, root), wrong
        with refused("none that this server has given"):
            visitors.store_of(wrong, root)
    assert not (root / "visitors").exists()
    visitors._secret.cache_clear()  # as in a process that starts
    assert visitors.is_given(token, root)
    assert (root / "server.key").stat().st_mode & 0o077 == 0
    stays = visitors.store_of(token, root)
    (root / "server.key").write_bytes(b"damaged")
    visitors._secret.cache_clear()
    assert visitors.store_of(token, root).root == stays.root
    assert visitors.is_given(visitors.new_token(root), root)


def old(path, days):
    then = time.time() - days * visitors.DAY
    os.utime(path, (then, then))


def test_uploads_go_with_the_last_analysis_of_them(two):
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


def test_a_visitor_who_stays_away_is_forgotten(root, settings):
    stores = {name: fresh(root) for name in "abcd"}
    for name in "abc":
        finished(stores[name])
    for name, days in {"a": 31, "b": 29, "d": 2}.items():
        old(stores[name].root / "seen", days)
    visitors.forget_visitors(root, days=30)
    assert {name for name, store in stores.items() if store.root.exists()} == {"b", "c"}
    assert not list((root / "unfinished").iterdir())


def test_uploads_are_limited_one_by_one_and_in_all(root, settings):
    settings("upload_mb = 0.001", "uploads_mb = 0.0025")
    store = fresh(root)
    with refused("0.001 MB"):
        analyses.keep_upload(b"x" * 1001, "a.csv", store)
    for n in range(2):
        analyses.keep_upload(bytes([n]) * 1000, "a.csv", store)
    with refused("0.0025 MB"):
        analyses.keep_upload(b"2" * 1000, "a.csv", store)
    assert analyses.keep_upload(b"2" * 1000, "a.csv", fresh(root)).is_file()


@pytest.fixture
def work(tmp_path, root, monkeypatch):
    """Starts idle work of a visitor; ends all of it."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    tasks: list[Task] = []

    def start(store, name, **request):
        task = Task(name, store.root / "jobs" / name)
        task.start({"began": str(tmp_path / "began"), **request}, "idle_work")
        tasks.append(task)
        return task

    yield start
    for task in tasks:
        task.cancel()


def until(tasks, are):
    """Wait for what holds of the statuses of tasks; those."""
    end = time.monotonic() + 60
    while not are(found := [task.status() for task in tasks]):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def ended(*tasks):
    return until(tasks, lambda found: all(one.state in ("failed", "done") for one in found))


@for_each(
    "line, request_, says",
    ("memory_gb = 0.4", {"bytes": 600_000_000, "seconds": 30}, "more than 0.4 GB of memory"),
    ("minutes = 0.02", {"seconds": 30}, "more than 0.02 minutes"),
)
def test_a_run_that_takes_too_much_ends_with_a_sentence(settings, root, work, line, request_, says):
    settings(line)
    task = work(fresh(root), "greedy", **request_)
    (status,) = ended(task)
    assert says in status.message and status.message.endswith(".")
    assert processes.gone(task.folder, 10) and not list(task.folder.glob("unfinished-*"))
    # One's own server lets it.
    assert ended(work(Store(root), "own", **{**request_, "seconds": 0}))[0].state == "done"


def test_visitors_have_their_turns_one_after_the_other(settings, tmp_path, two, work):
    settings("runs_each = 3")
    a, b = two
    go = tmp_path / "go"
    first = work(a, "a0", go=str(go))
    until([first], lambda found: found[0].state == "running")
    later = [work(*one, go=str(go)) for one in ((a, "a1"), (a, "a2"), (b, "b0"), (b, "b1"))]
    with refused("3 runs of yours wait or run"):
        work(a, "a3")
    assert not (a.root / "jobs" / "a3" / "pid.json").exists()
    # Each process says itself that it waits, or nothing yet; b0 has the next turn.
    until(later, lambda found: [one.before for one in found] == [2, 4, 1, 3])
    # Whoever cancels cancels what is theirs; the others go on.
    Task("b1", a.root / "jobs" / "b1").cancel()
    assert later[3].status().state == "queued"
    later[3].cancel()
    assert [task.status().state for task in later] == ["queued", "queued", "queued", "cancelled"]
    go.touch()
    assert {status.state for status in ended(first, *later[:3])} == {"done"}
    assert (tmp_path / "began").read_text().split() == ["a0", "b0", "a1", "a2"]


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd")), st.data())
def test_nobody_waits_for_the_second_turn_of_another(waiting, running, data):
    """Beside rules said one by one: each owner's in order of arrival, and turns even out."""
    served = data.draw(st.dictionaries(st.sampled_from("abcd").map(Path), st.floats(1, 9)))
    asked = [
        limits.Waiting(Path(owner), (n, f"t{n}"), Path(f"{owner}/t{n}"))
        for n, owner in enumerate(waiting)
    ]
    order = limits.in_turn(asked[::-1], [Path(one) for one in running], served)
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


def test_no_path_of_the_machine_is_on_a_screen(settings, root, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(root))
    choices._paths.cache_clear()
    for path, left in {
        root / "visitors" / "ab" / "uploads" / "cd" / "my.csv": "my.csv",
        root / "jobs" / "0a" / "log": "log",
        root: "…",
        HERE: "faults",
        Path.home() / ".cache" / "x": "x",
    }.items():
        for around in ("{}", "see {}", "the file {!r} is", "the file {}: row 3."):
            said = choices.plain(around.format(str(path))).replace("\\", "")
            assert said == around.format(left if "!r" not in around else str(left)), path
    for harmless in ("and/or", "a / b", "state-spaces/mamba-130m-hf", "1/2", "http://a.b/tmp/c"):
        assert choices.plain(harmless).replace("\\", "") == harmless
    choices._paths.cache_clear()
