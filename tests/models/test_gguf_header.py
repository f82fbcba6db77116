"""A GGUF file is opened with one reading of its header, which is what the package reads."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from mlem_core.models.gguf_header import read_once
from mlem_core.models.loading import open_model
from mlem_core.models.registry import locate

OWN = gguf.GGUFReader, gguf.get_tensor_name_map


@pytest.mark.slow
def test_the_header_is_read_once(monkeypatch):
    read = []
    fields = gguf.GGUFReader._build_fields

    def counted(self, *given):
        read.append(type(self).__name__)
        return fields(self, *given)

    monkeypatch.setattr(gguf.GGUFReader, "_build_fields", counted)
    ours = open_model("smollm2", "cpu")
    assert len(read) == 1
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == OWN
    assert ours.n_layers == 30


@pytest.mark.slow
def test_the_reader_gives_what_the_package_s_gives():
    files = locate("smollm2")
    assert files.gguf is not None
    path = files.folder / files.gguf
    with read_once():
        ours = gguf.GGUFReader(path)
        assert gguf.GGUFReader(path) is ours
    theirs = gguf.GGUFReader(path)
    assert ours.fields.keys() == theirs.fields.keys()
    for name, field in theirs.fields.items():
        mine = ours.fields[name]
        assert (mine.data, mine.types, len(mine.parts)) == (
            field.data,
            field.types,
            len(field.parts),
        )
        for k in field.data[:50]:
            np.testing.assert_array_equal(mine.parts[k], field.parts[k])
    for mine, tensor in zip(ours.tensors, theirs.tensors, strict=True):
        assert (mine.name, mine.tensor_type) == (tensor.name, tensor.tensor_type)
        np.testing.assert_array_equal(mine.data[:2], tensor.data[:2])


def test_what_fails_leaves_the_package_as_it_was():
    with pytest.raises(ValueError, match="no such"), read_once():
        raise ValueError("no such")
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == OWN
