"""Several processes, versions and clocks on one store."""

import os
import subprocess
import sys

import pytest
from commands import ROOT, contents, inputs_in


def started(arguments, folder, store):
    return subprocess.Popen(
        [sys.executable, "-m", "mlem_core", "analyze", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MLEM_CACHE": str(store)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.faults
def test_five_processes_with_equal_and_different_work(tmp_path):
    options = inputs_in(tmp_path / "in")
    alone = {}
    for seed in ("0", "1"):
        out = tmp_path / f"alone{seed}"
        arguments = [*options, "--seed", seed, "--out", str(out)]
        assert started(arguments, tmp_path, tmp_path / "other").wait() == 0
        alone[seed] = contents(out)
    seeds = ["0", "1", "0", "0", "1"]
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "mine.txt").write_text("mine")
    for shared in (False, True):
        outs = [tmp_path / ("shared" if shared else f"own{n}") for n in range(5)]
        running = [
            started([*options, "--seed", seed, "--out", str(out)], tmp_path, tmp_path / "store")
            for seed, out in zip(seeds, outs, strict=True)
        ]
        said = [each.communicate(timeout=250)[1] for each in running]
        assert [each.returncode for each in running] == [0] * 5, said
        if shared:
            both = [{**files, "mine.txt": b"mine"} for files in alone.values()]
            assert contents(outs[0]) in both
        else:
            assert [contents(out) for out in outs] == [alone[seed] for seed in seeds]
    assert not any((tmp_path / "store" / "unfinished").iterdir())
