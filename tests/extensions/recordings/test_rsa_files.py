"""Files of MATLAB that hold RDMs or responses."""

import h5py
import numpy as np
import pytest
import scipy.io
from helpers.inputs import for_each, refused
from helpers.tiny import sentence_stimuli
from scipy.spatial.distance import squareform

from mlem_core.representations.array_files import HoldsDistances
from mlem_core.representations.arrays import from_file, n_subjects

RANDOM = np.random.default_rng(0)
NAMES = ["A cat", "A dog", "She runs", "He runs", "We sleep"]
ORDER = [3, 0, 4, 1, 2]  # of the files
THEIRS = [NAMES[place] for place in ORDER]
CONDENSED = RANDOM.uniform(1, 2, size=(4, 10))
SQUARES = np.array([squareform(rdm) for rdm in CONDENSED])
PLACES = np.argsort(ORDER)
OURS = SQUARES[:, PLACES][:, :, PLACES]
RESPONSES = RANDOM.normal(size=(5, 7))


@pytest.fixture
def five():
    return sentence_stimuli(NAMES)


def layers(source):
    return dict(zip(source.facts["layer_names"].values(), source.layers, strict=True))


def structs(titles, condensed=False):
    elements = np.zeros((1, len(titles)), [(name, object) for name in ("RDM", "name", "color")])
    for k, title in enumerate(titles):
        rdm = CONDENSED[k][None] if condensed else SQUARES[k]
        elements[0, k] = (rdm, title, np.ones((1, 3)))
    return elements


@for_each("condensed", False, True)
def test_structs_of_rdms_are_layers_by_their_names(tmp_path, five, condensed):
    path = tmp_path / "models.mat"
    stimuli = np.array(THEIRS, dtype=object)
    titles = ["animacy", "V1", "HMAX", "shape"]
    more = {"stimuli": stimuli, "vectors": np.ones((5, 12))}
    scipy.io.savemat(path, {"Models": structs(titles, condensed)} | more)
    source = from_file(path, five, distances=True)
    assert [*layers(source)] == titles
    for layer, ours in zip(source.layers, OURS, strict=True):
        np.testing.assert_array_equal(source[layer], ours)
    with refused("models.mat", "distances", "--precomputed NAME", by=HoldsDistances):
        from_file(path, five)


def test_structs_of_rdms_of_subjects_and_cells(tmp_path, five):
    path = tmp_path / "brain.mat"
    titles = [f"{area} | {name} | Session: 1" for name in "ab" for area in ("hIT", "V1")]
    scipy.io.savemat(path, {"RDMs": structs(titles), "stimuli": np.array(THEIRS, dtype=object)})
    assert n_subjects(path, distances=True) == 2
    second = from_file(path, five, distances=True, subject=2)
    assert [*layers(second)] == ["hIT | Session: 1", "V1 | Session: 1"]
    np.testing.assert_array_equal(second[0], OURS[2])
    np.testing.assert_array_equal(second[1], OURS[3])
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = RESPONSES, RESPONSES[:, :3]
    scipy.io.savemat(path, {"areas": cells, "data": {"V4": RESPONSES, "sampling": 2.0}})
    source = from_file(path, five)
    assert [*layers(source)] == ["areas{1}", "areas{2}", "data.V4"]
    np.testing.assert_array_equal(source[1], RESPONSES[:, :3])


def matlab_73(path):
    """A file as MATLAB writes it: axes in the opposite order, cells and structs as references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        references = file.create_group("#refs#")

        def put(group, name, value, kind):
            group.create_dataset(name, data=value).attrs["MATLAB_class"] = np.bytes_(kind)
            return group[name].ref

        def text(name, value):
            return put(references, name, np.array([[ord(c)] for c in value], "u2"), "char")

        put(file, "V1", RESPONSES[ORDER].T, "double")
        cells = [[text(f"n{k}", name) for k, name in enumerate(THEIRS)]]
        put(file, "stimuli", np.array(cells, h5py.ref_dtype), "cell")
        rdms = file.create_group("RDMs")
        rdms.attrs["MATLAB_class"] = np.bytes_("struct")
        fields = [put(references, f"r{k}", SQUARES[k], "double") for k in range(2)]
        rdms.create_dataset("RDM", data=np.array([[field] for field in fields], h5py.ref_dtype))
        titles = [text("t0", "IT"), text("t1", "V4")]
        rdms.create_dataset("name", data=np.array([[title] for title in titles], h5py.ref_dtype))
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


def test_matlab_73_is_read_as_matlab_means_it(tmp_path, five):
    path = tmp_path / "brain.mat"
    matlab_73(path)
    source = from_file(path, five, distances=True)
    assert [*layers(source)] == ["IT", "V4"]
    np.testing.assert_array_equal(source[1], OURS[1])
    with h5py.File(path, "a") as file:
        del file["RDMs"]
    with h5py.File(path) as file:
        assert file["V1"].shape == RESPONSES.T.shape
    source = from_file(path, five)
    assert [*layers(source)] == ["V1"]
    np.testing.assert_array_equal(source[0], RESPONSES)
