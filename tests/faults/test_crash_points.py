"""Killed at any call that changes a file: done anew it gives the same, and nothing is left over."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import SCRIPTED

LONG = ("analyze-warm", "worker", "deletion")
ALL = ("bootstrap-warm", "capsule", "upload", *LONG)


def crashed(scenarios, folder, most):
    script = str(Path(__file__).with_name("crash.py"))
    arguments = [sys.executable, script, scenarios, str(folder), str(most)]
    done = subprocess.run(arguments, env=SCRIPTED, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_killed_at_some_calls_and_what_is_left_over_is_found(tmp_path):
    found = crashed("upload,careless", tmp_path / "crash", 6)
    assert "left over" in str(found["careless"]["amiss"])
    assert found["upload"]["amiss"] == {} and found["upload"]["kills"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("scenario", LONG)
def test_long_work_killed_at_some_calls(scenario, tmp_path):
    found = crashed(scenario, tmp_path / "crash", 6)[scenario]
    assert found["amiss"] == {} and found["kills"] == 6


@pytest.mark.faults
@pytest.mark.parametrize("scenario", ALL)
def test_killed_at_every_call(scenario, tmp_path):
    found = crashed(scenario, tmp_path / "crash", 0)[scenario]
    print(f"{scenario}: killed {found['kills']} times at {found['calls']} calls")
    assert found["amiss"] == {}
