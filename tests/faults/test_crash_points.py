"""Killed at any call that changes a file: done anew it gives the same, and nothing is left over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import SCRIPTED

LONG = ("analyze-warm", "worker", "deletion")
ALL = ("analyze", "bootstrap", "bootstrap-warm", "capsule", "parts", "start", "upload", *LONG)


def crashed(scenario: str, folder: Path, most: int) -> dict[str, Any]:
    script = str(Path(__file__).with_name("crash.py"))
    arguments = [sys.executable, script, scenario, str(folder), str(most)]
    done = subprocess.run(arguments, env=SCRIPTED, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "scenario", ["upload", *(pytest.param(one, marks=pytest.mark.slow) for one in LONG)]
)
def test_killed_at_some_calls(scenario: str, tmp_path: Path) -> None:
    found = crashed(scenario, tmp_path / "crash", 6)
    assert found["amiss"] == {} and found["kills"] == 6


def test_what_is_left_over_would_be_found(tmp_path: Path) -> None:
    assert "left over" in str(crashed("careless", tmp_path / "crash", 0)["amiss"])


@pytest.mark.faults
@pytest.mark.parametrize("scenario", ALL)
def test_killed_at_every_call(scenario: str, tmp_path: Path) -> None:
    found = crashed(scenario, tmp_path / "crash", 0)
    print(f"{scenario}: killed {found['kills']} times at {found['calls']} calls")
    assert found["amiss"] == {}
