"""Files of MATLAB, rsatoolbox and Meadows that hold RDMs or responses."""

import csv
import itertools
import json

import h5py
import numpy as np
import pytest
import scipy.io
from helpers.inputs import for_each, refused
from helpers.tiny import sentence_stimuli
from rsatoolbox.data import Dataset, TemporalDataset
from rsatoolbox.rdm import RDMs
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


def test_rdms_of_rsatoolbox(tmp_path, five):
    path = tmp_path / "rdms.hdf5"
    patterns = {"conds": THEIRS}
    described = {"roi": ["V1", "V1", "IT", "IT"], "subject": [1, 2, 1, 2]}
    rdms = RDMs(CONDENSED, pattern_descriptors=patterns, rdm_descriptors=described)
    rdms.save(str(path), file_type="hdf5")
    assert n_subjects(path, distances=True) == 2
    second = from_file(path, five, distances=True, subject=2)
    assert [*layers(second)] == ["V1", "IT"]
    np.testing.assert_array_equal(second[1], OURS[3])
    path.unlink()
    named = {"name": ["animacy", "shape", "V1", "HMAX"]}
    RDMs(CONDENSED, pattern_descriptors=patterns, rdm_descriptors=named).save(
        str(path), file_type="hdf5"
    )
    source = from_file(path, five, distances=True)
    assert [*layers(source)] == named["name"] and np.array_equal(source[3], OURS[3])
    with refused("rdms.hdf5", "distances"):
        from_file(path, five)
    pickled = tmp_path / "rdms.pkl"
    rdms.save(str(pickled), file_type="pkl")
    with refused("rdms.pkl", "pickle", "file_type='hdf5'"):
        from_file(pickled, five)


def test_data_sets_of_rsatoolbox(tmp_path, five):
    path = tmp_path / "data.hdf5"
    Dataset(RESPONSES[ORDER], obs_descriptors={"stim": THEIRS}).save(str(path), file_type="hdf5")
    np.testing.assert_array_equal(from_file(path, five)[0], RESPONSES)
    times = {"time": np.array([-0.1, 0.0, 0.1])}
    whole = RANDOM.normal(size=(5, 7, 3))
    TemporalDataset(whole[ORDER], obs_descriptors={"stim": THEIRS}, time_descriptors=times).save(
        str(tmp_path / "time.hdf5"), file_type="hdf5"
    )
    source = from_file(tmp_path / "time.hdf5", five, by_number=True)
    assert [*layers(source)] == ["-0.1 s", "0.0 s", "0.1 s"]
    np.testing.assert_array_equal(source[2], whole[..., 2])


def test_arrangements_of_meadows(tmp_path, five):
    names = np.array([f"{name}.png" for name in THEIRS])
    path = tmp_path / "Meadows_x_v_v1_arrangement_1D.mat"
    people = ("adorable_ant", "brave_bee")
    content = {f"rdmutv_{who}": CONDENSED[k][None] for k, who in enumerate(people)}
    scipy.io.savemat(path, content | {f"stimuli_{who}": names for who in people})
    assert n_subjects(path, distances=True) == 2
    np.testing.assert_array_equal(from_file(path, five, distances=True, subject=2)[0], OURS[1])
    scipy.io.savemat(path, {"rdmutv": CONDENSED[:1], "stimuli": names})
    np.testing.assert_array_equal(from_file(path, five, distances=True)[0], OURS[0])
    scipy.io.savemat(
        path, content | {"stimuli_adorable_ant": names, "stimuli_brave_bee": names[::-1].copy()}
    )
    with refused("participants of Meadows", "same for all"):
        from_file(path, five, distances=True)
    task = {
        "task": {"name": "arrangement", "task_type": "multiarrange"},
        "stimuli": [{"name": name} for name in names],
        "rdm": CONDENSED[0].tolist(),
    }
    text = tmp_path / "Meadows_x_v_v1_brave-bee_tree.json"
    text.write_text(json.dumps({"tasks": [task, {"task": {"task_type": "survey"}}]}))
    source = from_file(text, five, distances=True)
    assert [*layers(source)] == ["arrangement"] and np.array_equal(source[0], OURS[0])
    text.write_text("[1, 2")
    with refused("tree.json", "damaged"):
        from_file(text, five)
    text.write_text("{}")
    with refused("tree.json", "no JSON of Meadows"):
        from_file(text, five)
    table = tmp_path / "Meadows_x.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["participation", "stim1_name", "stim2_name", "dissimilarity"])
        for k, who in enumerate(people):
            pairs = itertools.combinations(names, 2)
            writer.writerows([who, *pair, d] for pair, d in zip(pairs, CONDENSED[k], strict=True))
    assert n_subjects(table, distances=True) == 2
    np.testing.assert_allclose(from_file(table, five, distances=True, subject=1)[0], OURS[0])
