"""Bins of an analysis: what they cost is said, and whoever looks at its pairs has the same."""

import re

import pytest
from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.analysis.similarities import pair_cells
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.storage.store import Store


def test_what_bins_cost_is_measured_and_their_cells_are_found_again(tmp_path, monkeypatch):
    table = words()
    layers = noise(len(table))
    layers[1][:, 0] += 3 * table["length"]
    spec = in_files(tmp_path, table, {"one": layers})
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_BYTES", 2**18)
    analysis = run(spec, Store(tmp_path / "bins"), progress=False)
    monkeypatch.undo()
    exact = run(spec, Store(tmp_path / "exact"), progress=False)
    assert len(analysis.tables.counts) < len(exact.tables.counts)
    (said,) = [notice for notice in analysis.notices if "change held-out" in notice]
    assert said in analysis.manifest["notices"] and not any("bins" in n for n in exact.notices)
    # There are so few stimuli and layers that all are measured.
    binned, plain = (one.results().scores["rho"].mean() for one in (analysis, exact))
    value = re.search(r"by ([+−]\d\.\d+)", said)
    assert value and float(value[1].replace("−", "-")) == pytest.approx(binned - plain, abs=6e-5)
    assert abs(binned - plain) > 1e-4
    cells = pair_cells(analysis, SIMILARITIES.named("cka"))
    assert cells.n_cells == len(analysis.tables.counts)
    pairs = LayerPairs.of(analysis, analysis.layers, Store(tmp_path / "bins"))
    assert pairs.cells.max() + 1 == len(pairs.tables.counts)
