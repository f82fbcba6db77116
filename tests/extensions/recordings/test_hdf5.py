"""HDF5 files as h5py writes them."""

import h5py
import numpy as np
import pytest
from helpers.inputs import for_each, refused
from helpers.tiny import sentence_stimuli

from mlem_core.representations.arrays import from_file

RANDOM = np.random.default_rng(0)
V1, V4 = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(3, 2)).astype(np.float32)


@pytest.fixture
def three():
    return sentence_stimuli(["A cat.", "A dog.", "She runs."])


@for_each("how", {}, {"chunks": (2, 1), "compression": "gzip"}, {"chunks": (1, 2)})
@for_each("suffix", ".h5", ".hdf5")
def test_datasets_are_layers_and_texts_name_the_rows(tmp_path, three, how, suffix):
    path, order = tmp_path / f"brain{suffix}", [2, 0, 1]
    with h5py.File(path, "w") as file:
        file.create_dataset("V1", data=V1[order], **how)
        file.create_dataset("more/V4", data=V4[order], **how)
        file["sentences"] = [["A cat.", "A dog.", "She runs."][row] for row in order]
        file["soft"], file["other"] = h5py.SoftLink("/V1"), h5py.ExternalLink("x.h5", "/V1")
    source = from_file(path, three)
    assert [*source.facts["layer_names"].values()] == ["V1", "more/V4"]
    np.testing.assert_array_equal(source[0], V1)
    np.testing.assert_array_equal(source[1], V4)
    assert "by name" in source.notes[0] and len(source.notes) == 1


def test_what_is_no_array_of_hdf5_is_refused(tmp_path, three):
    path = tmp_path / "brain.h5"
    path.write_bytes(b"a text, no recording")
    with refused("brain.h5", "damaged or no .h5 file"):
        from_file(path, three)
    raw = tmp_path / "secret"
    raw.write_bytes(V1.tobytes())
    contents = (
        ({"external": [(str(raw), 0, V1.nbytes)], "shape": V1.shape, "dtype": "f8"}, "other files"),
        ({"data": V1 + 1j}, "complex"),
        ({"data": np.zeros((3, 4), [("a", "f8")])}, "[('a', '<f8')]"),
    )
    for content, fact in contents:
        with h5py.File(path, "w") as file:
            file.create_dataset("V1", **content)
        with refused("array V1 of brain.h5", fact):
            from_file(path, three)
