"""No room for more bytes, at any moment: one sentence, and what was there stays whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SCRIPTED, analyze, contents
from permissions import limited
from small_disk import left_over


def tried(tmp_path: Path, size: int, warm: bool, *more: str) -> int:
    around = {"BROWSER_PATH": "none"}
    if warm:
        first = analyze(tmp_path, **around)
        assert first.returncode == 0, first.stderr.decode()
    (tmp_path / "work").mkdir(exist_ok=True)
    before = contents(tmp_path / "work")
    done = analyze(tmp_path, *more, before=limited("RLIMIT_FSIZE", size), **around)
    said = done.stderr.decode()
    assert done.returncode in (0, 2), said
    if done.returncode == 2:
        assert said.count("\n") == 1 and "free" in said and "Traceback" not in said, said
        if "--capsule" not in more:
            assert contents(tmp_path / "work") == before
    assert not left_over(tmp_path)
    again = analyze(tmp_path, *more, **around)
    assert again.returncode == 0, again.stderr.decode()
    return done.returncode


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    assert tried(tmp_path, 100, False) == 2


@pytest.mark.faults
@pytest.mark.parametrize("size", [0, 1, 300, 500, 1000, 2000, 4000, 8000, 16000, 64000])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("more", [(), ("--bootstrap", "20"), ("--capsule", "c.zip")])
def test_a_disk_that_is_full_at_any_size(
    tmp_path: Path, size: int, warm: bool, more: tuple[str, ...]
) -> None:
    tried(tmp_path, size, warm, *more)


@pytest.mark.faults
def test_a_disk_of_any_size(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root may mount a disk for one process")
    sizes = [str(size) for size in range(4, 300, 4)]
    script = str(Path(__file__).with_name("small_disk.py"))
    done = subprocess.run(
        ["unshare", "-m", sys.executable, script, str(tmp_path / "x"), *sizes],
        env=SCRIPTED,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}
