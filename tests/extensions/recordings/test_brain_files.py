"""Files of MNE and NIfTI images, as their own libraries write them."""

import gzip
import sys

import mne
import nibabel
import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, refused
from helpers.tiny import sentence_stimuli

from mlem_core.representations.arrays import from_file

RANDOM = np.random.default_rng(0)
NAMES = ["A cat", "A dog", "She runs"]
INFO = mne.create_info(["a", "b", "c"], 100.0, "eeg")


@pytest.fixture
def three():
    return sentence_stimuli(NAMES)


def epochs_of(events, info=INFO, n_times=4, **more):
    """Epochs with a sample of noise each, of these stimuli."""
    data = RANDOM.normal(size=(len(events), len(info["ch_names"]), n_times)) * 1e-6
    rows = np.column_stack([np.arange(len(events)), np.zeros(len(events)), events]).astype(int)
    ids = {name: number for number, name in enumerate(NAMES, 1) if number in events}
    return mne.EpochsArray(data, info, rows, -0.01, ids, verbose="error", **more)


def test_epochs_are_a_layer_a_time_and_events_name_the_stimuli(tmp_path, three):
    path = tmp_path / "sub-epo.fif"
    epochs = epochs_of([3, 1, 2, 2, 3, 1])
    epochs.save(path, verbose="error")
    data = epochs.get_data(copy=True).astype(np.float32)
    source = from_file(path, three, by_number=True, repetitions=True)
    names = [*source.facts["layer_names"].values()]
    assert names == ["-10 ms", "0 ms", "10 ms", "20 ms"]
    for layer in source.layers:
        np.testing.assert_allclose(source[layer], data[[[1, 2, 0], [5, 3, 4]], :, layer])
    mean = from_file(path, three, by_number=True)
    np.testing.assert_allclose(mean[3], data[[[1, 2, 0], [5, 3, 4]], :, 3].mean(axis=0), rtol=1e-5)
    assert any("2 repetitions" in note for note in mean.notes)
    epochs_of([3, 1, 2, 2]).save(path, overwrite=True, verbose="error")
    assert any("1 to 2 rows" in note for note in from_file(path, three).notes)


def test_metadata_name_epochs_and_types_of_channels_are_layers(tmp_path, three):
    info = mne.create_info(["m", "e", "n", "s"], 100.0, ["mag", "eeg", "mag", "stim"])
    path = tmp_path / "sub-epo.fif"
    metadata = pd.DataFrame({"sentence": [NAMES[place] for place in (2, 0, 1)], "rt": 0.5})
    epochs = epochs_of([1, 1, 1], info, metadata=metadata)
    epochs.save(path, verbose="error")
    source = from_file(path, three)
    names = [*source.facts["layer_names"].values()]
    assert len(names) == 8 and {"mag 10 ms", "eeg 10 ms"} <= {*names}
    data = epochs.get_data(copy=True)[[1, 2, 0]]
    np.testing.assert_allclose(source[names.index("mag 10 ms")], data[:, [0, 2], 2], rtol=1e-5)
    np.testing.assert_allclose(source[names.index("eeg 0 ms")], data[:, [1], 1], rtol=1e-5)


def test_evoked_responses_are_stimuli_by_their_comments(tmp_path, three):
    path = tmp_path / "sub-ave.fif"
    data = RANDOM.normal(size=(3, 3, 5)) * 1e-6
    order = (1, 2, 0)
    evoked = [mne.EvokedArray(data[k], INFO, 0.1, NAMES[k]) for k in order]
    mne.write_evokeds(path, evoked, verbose="error")
    source = from_file(path, three, by_number=True)
    assert source.facts["layer_names"]["4"] == "140 ms"
    np.testing.assert_allclose(source[4], data[..., 4], rtol=1e-5)


def test_what_is_no_recording_of_responses_is_refused(tmp_path, three, monkeypatch):
    path = tmp_path / "sub_raw.fif"
    mne.io.RawArray(np.zeros((3, 200)), INFO, verbose="error").save(path, verbose="error")
    with refused("sub_raw.fif holds raw", "epochs"):
        from_file(path, three)
    path.write_bytes(b"no recording")
    with refused("sub_raw.fif"):
        from_file(path, three)
    epochs_of([1, 2, 3]).save(tmp_path / "x-epo.fif", verbose="error")
    whole = (tmp_path / "x-epo.fif").read_bytes()
    (tmp_path / "x-epo.fif").write_bytes(whole[: len(whole) // 2])
    with refused("x-epo.fif"):
        from_file(tmp_path / "x-epo.fif", three)
    monkeypatch.setitem(sys.modules, "mne", None)
    (tmp_path / "y.fif").write_bytes(whole)
    with refused("y.fif", "package mne", "pip install mlem-explorer[recordings]"):
        from_file(tmp_path / "y.fif", three)


def image(path, array, affine=None):
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4) if affine is None else affine), path)
    return str(path)


@for_each("suffix", ".nii", ".nii.gz")
def test_regions_of_an_atlas_are_layers(tmp_path, three, suffix):
    volumes = RANDOM.normal(size=(4, 5, 3, 3)).astype(np.float32)
    path = tmp_path / f"betas{suffix}"
    image(path, volumes)
    numbers = RANDOM.integers(0, 3, size=(4, 5, 3)).astype(np.int16)
    atlas = image(tmp_path / "atlas.nii.gz", numbers)
    source = from_file(path, three, regions=atlas)
    assert source.name == "betas"
    assert [*source.facts["layer_names"].values()] == ["region 1", "region 2"]
    for layer, number in enumerate((1, 2)):
        np.testing.assert_array_equal(source[layer], volumes[numbers == number].T)
    (tmp_path / "atlas.tsv").write_text("index\tname\n2\tFFA\n1\tV1\n")
    table = tmp_path / "volumes.csv"
    table.write_text("stimulus\n" + "\n".join(NAMES[k] for k in (1, 2, 0)))
    named = from_file(path, three, regions=atlas, rows=str(table))
    assert [*named.facts["layer_names"].values()] == ["V1", "FFA"]
    np.testing.assert_array_equal(named[1], volumes[numbers == 2].T[[2, 0, 1]])
    assert named.identity != source.identity
    mask = image(tmp_path / "ffa.nii", (numbers == 2).astype(np.uint8))
    masked = from_file(path, three, regions=mask)
    assert [*masked.facts["layer_names"].values()] == ["ffa"]
    # An atlas of another resolution is resampled to the nearest voxel.
    fine = np.repeat(np.repeat(np.repeat(numbers, 2, 0), 2, 1), 2, 2)
    affine = np.diag([0.5, 0.5, 0.5, 1])
    affine[:3, 3] = -0.25
    other = from_file(path, three, regions=image(tmp_path / "fine.nii", fine, affine))
    np.testing.assert_array_equal(other[0], source[0])


def test_what_is_no_image_or_no_atlas_is_refused(tmp_path, three):
    path = tmp_path / "betas.nii"
    volumes = RANDOM.normal(size=(4, 5, 3, 3))
    image(path, volumes)
    atlas = image(tmp_path / "atlas.nii", np.ones((4, 5, 3), np.int16))
    with refused("betas.nii", "mask or an atlas", "--regions NAME=FILE"):
        from_file(path, three)
    with refused("atlas.nii has 3 axes", "(x, y, z, stimuli)"):
        from_file(tmp_path / "atlas.nii", three, regions=atlas)
    with refused("betas.nii has 4 axes", "(x, y, z)"):
        from_file(path, three, regions=str(path))
    with refused("no image of regions"):
        from_file(path, three, regions=__file__)
    with refused("other.nii", "numbers that are not whole"):
        from_file(path, three, regions=image(tmp_path / "other.nii", volumes[..., 0]))
    with refused("3 rows", "2 stimuli"):
        from_file(path, sentence_stimuli(NAMES[1:]), regions=atlas)
    (tmp_path / "damaged.nii.gz").write_bytes(gzip.compress(path.read_bytes())[:300])
    with refused("damaged.nii.gz"):
        from_file(tmp_path / "damaged.nii.gz", three, regions=atlas)
    np.savez(tmp_path / "a.npz", layer_00=np.ones((3, 2)))
    with refused("a.npz is no NIfTI", "--regions"):
        from_file(tmp_path / "a.npz", three, regions=atlas)
