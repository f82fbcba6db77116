"""`make gpu` where there is no GPU: its code on the CPU, and a word for all that was skipped."""

import numpy as np
import pytest

from benchmarks import gpu, gpu_models, gpu_pairs
from benchmarks.device import NO_GPU, Device
from benchmarks.gpu_pairs import Case
from benchmarks.timing import Table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
CPU = Device("cpu")


def test_pair_tables_agree():
    case, table = Case.of(120, 8), Table()
    gpu_pairs.passes(table, CPU, case, runs=1)
    (_, ranks, *_), (_, distances, *_), skipped = table.rows
    assert float(ranks) <= 1e-9 and float(distances) <= 1e-12
    assert skipped[1:3] == ("skipped", NO_GPU)


def test_differences_are_found():
    case = Case.of(90, 8)
    ours, theirs = (own.tables(None) for own in (case, Case(case.index, case.rows[::-1])))
    assert gpu_pairs.apart(ours, ours) == (0.0, 0.0)
    assert min(gpu_pairs.apart(ours, theirs)) > 1e-3
    layers = [np.arange(6.0).reshape(2, 3), np.ones((2, 3))]
    assert gpu_models.difference(layers, [layers[0], layers[1] * 2]) == 0.5


def test_a_section_that_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    def broken(*_):
        raise RuntimeError("no kernel image\nis available")

    for name in ("extraction", "kernels"):
        monkeypatch.setattr(gpu_models, name, broken)
    monkeypatch.setattr(gpu, "SMALL", gpu.Sizes(4, 60))
    table = Table()
    gpu.measure(table, CPU, gpu.SMALL, 1)
    failed = [row for row in table.rows if row[1] == "failed"]
    assert failed[0][:3] == ("extraction, minilm", "failed", "RuntimeError: no kernel image")
    assert len(failed) == len(gpu.MODELS) + 2 and len(table.rows) == len(failed) + 3
    table.write(tmp_path / "gpu.md", gpu.heading(CPU, 1))
    written = (tmp_path / "gpu.md").read_text("utf-8")
    assert "Nothing here has run on CUDA" in written and written.count("skipped") == 1 + 1
