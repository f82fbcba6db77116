"""Several processes, versions and clocks on one store."""

import subprocess

import pytest
from commands import command, contents, inputs_in


def analyzed(options, out, store, **how):
    arguments = ["analyze", *options, "--out", str(out)]
    return command(arguments, out.parent, MLEM_CACHE=str(store), **how)


@pytest.mark.faults
def test_five_processes_with_equal_and_different_work(tmp_path):
    options = inputs_in(tmp_path / "in")
    alone = {}
    for seed in ("0", "1"):
        out = tmp_path / f"alone{seed}"
        assert analyzed([*options, "--seed", seed], out, tmp_path / "other").returncode == 0
        alone[seed] = contents(out)
    seeds = ["0", "1", "0", "0", "1"]
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "mine.txt").write_text("mine")
    for shared in (False, True):
        outs = [tmp_path / ("shared" if shared else f"own{n}") for n in range(5)]
        running = [
            analyzed([*options, "--seed", seed], out, tmp_path / "store", by=subprocess.Popen)
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
