"""`make gpu` where there is no GPU: its code on the CPU, and a word for all that was skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny

from benchmarks import gpu, gpu_models, gpu_pairs
from benchmarks.device import NO_GPU, Device
from benchmarks.gpu_pairs import Case
from benchmarks.timing import Table
from mlem_core.base.errors import InputError
from mlem_core.pairs.build import in_classes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
CPU = Device("cpu")
KERNEL = """
import os, pathlib
import torch
def causal_conv1d_fn(x, weight, bias=None, activation=None):
    pathlib.Path(__file__).with_name(f"called-{os.getpid()}").touch()
    out = torch.nn.functional.conv1d(
        x, weight.unsqueeze(1), bias, padding=weight.shape[1] - 1, groups=x.shape[1]
    )[..., : x.shape[2]]
    return torch.nn.functional.silu(out)
"""


def told(table: Table) -> dict[str, tuple[str, ...]]:
    return {what: others for what, *others in table.rows}


def test_extraction_is_that_of_single_sentences_and_what_cannot_be_is_skipped(monkeypatch) -> None:
    def away(name: str, *_: str):
        if name == "minilm":
            raise InputError("it is away.")
        return tiny.opened(name)

    monkeypatch.setattr(gpu_models, "open_model", away)
    table = Table()
    for name in ("minilm", "mini-gpt2", "gpt2"):
        gpu_models.extraction(table, CPU, name, n_sentences=12, runs=1)
    gpu_models.kernels(table, CPU, "mini-mamba", 4, 1)
    assert table.rows[0][:3] == ("extraction, minilm", "skipped", "it is away.")
    assert table.rows[-1][1:3] == ("skipped", NO_GPU)
    rows = told(table)
    assert len(rows) == 7
    assert rows["extraction, gpt2"][0] == "skipped"
    for dtype, most in (("float32", 1e-5), ("bfloat16", 0.1)):
        start = f"extraction, mini-gpt2, {dtype}"
        ours, *_ = rows[f"{start}: largest difference from single sentences on the CPU in float32"]
        assert 0 < float(ours.split()[0]) < most
        assert rows[f"{start}: throughput over bare passes"][:2] == ["skipped", NO_GPU]


def test_the_rows_of_throughput() -> None:
    """The rows that a GPU adds, from the CPU: their form, not their numbers."""
    table, loaded = Table(), tiny.opened("mini-gpt2")
    gpu_models._throughput(table, CPU, "x", (gpu_models.sentences(8), loaded), runs=1)
    rows = told(table)
    ours, theirs, ratio, asked = rows["x: throughput over bare passes"]
    assert ours.endswith("tokens/s") and theirs.endswith("tokens/s") and float(ratio) > 0
    assert asked == "at least 0.9" and rows["x: peak memory"][0] == "0.00 GB"


def test_both_paths_of_mamba_are_run_each_in_its_process(tmp_path, monkeypatch) -> None:
    (tmp_path / "causal_conv1d.py").write_text(KERNEL)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    off, ours, plain = gpu_models.paths("mini-mamba", "cpu", n_sentences=2, runs=1)
    assert off < 1e-5 and ours > 0 and plain > 0
    assert len(list(tmp_path.glob("called-*"))) == 1  # by one of the two


@pytest.mark.parametrize("divided", [False, True])
def test_pair_tables_agree(divided) -> None:
    case, table = Case.of(120, 8), Table()
    assert in_classes(case.index.design, case.room(divided)) == divided
    gpu_pairs.passes(table, CPU, case, divided, runs=1)
    (_, ranks, *_), (_, distances, *_), skipped = table.rows
    assert float(ranks) <= 1e-9 and float(distances) <= 1e-12
    assert skipped[1:3] == ("skipped", NO_GPU)


def test_differences_are_found() -> None:
    case = Case.of(90, 8)
    ours, theirs = (own.tables(None, 2**30) for own in (case, Case(case.index, case.rows[::-1])))
    assert gpu_pairs.apart(ours, ours) == (0.0, 0.0)
    assert min(gpu_pairs.apart(ours, theirs)) > 1e-3
    layers = [np.arange(6.0).reshape(2, 3), np.ones((2, 3))]
    assert gpu_models.difference(layers, [layers[0], layers[1] * 2]) == 0.5


def test_a_section_that_fails_does_not_stop_the_others(monkeypatch, tmp_path) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel image\nis available")

    for name in ("extraction", "kernels"):
        monkeypatch.setattr(gpu_models, name, broken)
    monkeypatch.setattr(gpu, "SMALL", gpu.Sizes(4, 60, 60, 60))
    table = Table()
    gpu.measure(table, CPU, gpu.SMALL, 1)
    failed = [row for row in table.rows if row[1] == "failed"]
    assert failed[0][:3] == ("extraction, minilm", "failed", "RuntimeError: no kernel image")
    assert len(failed) == len(gpu.MODELS) + 2 and len(table.rows) == len(failed) + 7
    table.write(tmp_path / "gpu.md", gpu.heading(CPU, 1))
    written = (tmp_path / "gpu.md").read_text("utf-8")
    assert "Nothing here has run on CUDA" in written and written.count("skipped") == 3 + 1
