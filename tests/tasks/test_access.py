"""Who may reach the app and change something: a real process, and what the tasks refuse."""

import os
import subprocess
import sys

from helpers.inputs import for_each, in_files, noise, refused, words
from helpers.repository import ROOT

from mlem_core.storage.digests import Digested
from mlem_core.tasks import access, analyses, deletion, examples, followups, notes
from mlem_core.tasks.runner import Task


def ended(*arguments, **environment):
    """How a server that must not start has ended."""
    around = {key: value for key, value in os.environ.items() if key != access.VARIABLE}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**around, **environment}, capture_output=True, text=True, timeout=60
    )


@for_each(
    "arguments, environment",
    (["-m", "mlem_core", "app", "--host", "0.0.0.0"], {}),
    (["scripts/serve.py", "--host", "::"], {}),
    (["scripts/serve.py", "--server.address="], {}),
    (["scripts/serve.py"], {"STREAMLIT_SERVER_ADDRESS": "0.0.0.0"}),
    (["scripts/serve.py", "--host", "192.168.0.1"], {access.VARIABLE: "0"}),
)
def test_an_address_that_others_reach_is_refused_in_one_sentence(arguments, environment):
    done = ended(*arguments, **environment)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: whoever reaches") and "--view-only" in line


def test_a_log_in_without_its_package_is_refused_in_one_sentence(tmp_path):
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text('[auth]\nclient_id = "x"\n')
    (tmp_path / "authlib.py").write_text('__version__ = "1.0.0"\n')  # too old
    done = ended("scripts/serve.py", HOME=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and "Authlib>=1.3.2" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_only_shows_changes_nothing(store, tmp_path, monkeypatch):
    spec = in_files(tmp_path, words(), {"mine": noise(len(words()))})
    job = Task("0123456789abcdef", store.root / "jobs" / "0123456789abcdef")
    job.folder.mkdir(parents=True)
    (job.folder / "spec.json").write_text("{}")
    followup = followups.get_followup("audit", examples.ID, {}, store)

    def contents():
        files = (path for path in store.root.rglob("*") if path.is_file())
        return {path: Digested.from_file(path).digest for path in files}

    before = contents()
    monkeypatch.setenv(access.VARIABLE, "1")
    for change in (
        lambda: analyses.start(spec, store),
        lambda: analyses.keep_uploads([("a.csv", b"1"), ("b.csv", b"2")], store),
        lambda: notes.change_notes(examples.ID, store, lambda old: old.named("Mine")),
        lambda: deletion.delete(job.id, "Mine", store),
        lambda: deletion.restore(job.id, store),
        followup.begin,
        job.cancel,
    ):
        with refused("only shows finished analyses"):
            change()
    assert contents() == before
    found = analyses.find(examples.ID, store)
    assert found is not None and found.analysis() is examples.example()
