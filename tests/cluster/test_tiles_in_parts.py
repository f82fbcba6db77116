"""Both passes over a large layer in parts, left in a folder: what one process finds of it whole."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from mlem_core.analysis.in_parts import TiledLayer, count_part, passed_in_parts
from mlem_core.analysis.maps import from_file
from mlem_core.analysis.run import run
from mlem_core.base.executor import Here
from mlem_core.base.typing import Progress
from mlem_core.pairs.build import LayerWork, one_layer
from mlem_core.pairs.class_passes import ClassPasses, n_parts
from mlem_core.pairs.classes import pieces_of_work
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.storage.store import Store

MEMORY = 200_000


@pytest.fixture(scope="module")
def large(files_only, tmp_path_factory):
    stimuli = files_only.load_stimuli()
    folds = np.arange(len(stimuli)) % 5
    index = PairIndex.build(feature_columns(stimuli), folds)
    (name, path), *_ = files_only.representations
    source = from_file(files_only, stimuli, path, name)
    work = LayerWork("euclidean", "a layer", train_ranks=True, memory=MEMORY)
    folder = tmp_path_factory.mktemp("store") / "layer-tiles" / "key"
    return index, source, TiledLayer.placed(source, 1, work, folder)


def test_the_parts_add_up_to_the_whole(large):
    index, source, layer = large
    parts = n_parts(index.design.n_pairs, MEMORY)
    assert parts > 4
    told: list[int] = []
    sums, classes = passed_in_parts(index, layer, Here(), told.append)
    whole = one_layer(index, lambda: source[1], layer.work, threads=2)
    for name, value in vars(whole.sums).items():
        np.testing.assert_array_equal(getattr(sums, name), value, err_msg=name)
    theirs = whole.classes.as_arrays()
    assert classes.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(classes[name], value, err_msg=name)
    assert told == list(range(1, 2 * parts + 1))


def test_a_run_that_goes_on_counts_what_is_missing(large, tmp_path, monkeypatch):
    index, _, layer = large
    parts = range(n_parts(index.design.n_pairs, MEMORY))
    for part in parts:
        count_part(index, layer, part)
    copy = tmp_path / "layer-tiles" / "key"
    shutil.copytree(layer.folder, copy)
    (copy / "counts-2.npy").unlink()
    first, _ = passed_in_parts(index, layer, Here(), lambda _: None)
    assert not list(layer.folder.glob("counts-*"))
    counted, counts = [], ClassPasses.counts

    def watched(self, parts):
        counted.extend(parts)
        return counts(self, parts)

    monkeypatch.setattr(ClassPasses, "counts", watched)
    again, _ = passed_in_parts(index, layer._replace(folder=copy), Here(), lambda _: None)
    assert counted == [2]
    np.testing.assert_array_equal(again.rank_sums, first.rank_sums)


def test_a_run_says_how_far_it_is_inside_a_layer_and_can_be_stopped_there(files_only, tmp_path):
    spec = replace(files_only, memory=MEMORY / 2**30)
    told: list[Progress] = []

    class Enough(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.stage == "pair tables":
            told.append(progress)
            if progress.done == 3:
                raise Enough

    with pytest.raises(Enough):
        run(spec, Store(tmp_path), stop)
    n_stimuli = len(files_only.load_stimuli())
    pieces = pieces_of_work(n_stimuli * (n_stimuli - 1) // 2, MEMORY)
    assert [one.done for one in told] == [0, 1, 2, 3]
    assert told[-1].total == 5 * pieces
    assert told[-1].unit == "parts of layers"
    del told[:]
    run(replace(spec, layers=(0, 1)), Store(tmp_path), told.append)
    tables = [one for one in told if one.stage == "pair tables"]
    assert [one.done for one in tables] == list(range(2 * pieces + 1))
