"""No room for more bytes, at any moment: one sentence, and what was there stays whole."""

import pytest
from commands import analyze, contents
from permissions import limited


def left_over(disk):
    unfinished = disk / "store" / "unfinished"
    return [*(disk / "tmp").glob("*"), *(disk / "work").rglob(".*"), *unfinished.glob("*")]


def tried(tmp_path, size, warm, *more):
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
def test_a_disk_that_is_full(tmp_path):
    assert tried(tmp_path, 100, False) == 2


@pytest.mark.faults
@pytest.mark.parametrize("size", [0, 300, 1000, 4000, 16000, 64000])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("more", [(), ("--bootstrap", "20"), ("--capsule", "c.zip")])
def test_a_disk_that_is_full_at_any_size(tmp_path, size, warm, more):
    tried(tmp_path, size, warm, *more)
