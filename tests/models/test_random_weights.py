"""The control with random weights: the same architecture as training would have started from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from mlem_core.base.errors import InputError
from mlem_core.models import registry
from mlem_core.models.extraction import ExtractionOptions
from mlem_core.models.loading import open_model
from mlem_core.models.representations import find, from_model
from mlem_core.storage.store import Store

CPU = ExtractionOptions(device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.save("llama", tmp_path_factory.mktemp("llama")))


def weights(name: str) -> dict[str, torch.Tensor]:
    opened = open_model(name, "cpu")
    return {key: value for key, value in opened.model.state_dict().items() if value.ndim == 2}


def test_a_seed_is_one_set_of_weights(folder: str) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    trained, control, again, other = (
        weights(folder + suffix) for suffix in ("", "@random", "@random0", "@random1")
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert list(trained) == list(control)
    for key, value in control.items():
        assert torch.equal(value, again[key])
        # The tiny model was never trained: it was saved as it is initialised with seed 0.
        assert torch.equal(value, trained[key])
        assert value.shape == other[key].shape and not torch.equal(value, other[key])


def test_a_control_says_what_it_is(folder: str) -> None:
    opened = open_model(f"{folder}@random2", "cpu")
    assert opened.note == "random weights, seed 2"
    names = [folder, f"{folder}@random", f"{folder}@random2"]
    assert len({registry.identity(name) for name in names}) == 3
    assert opened.identity == registry.identity(names[2])
    with pytest.raises(InputError, match="no model folder"):
        registry.identity("./nowhere@random")


def test_a_control_has_representations_of_its_own(folder: str, tmp_path: Path) -> None:
    store, stimuli = Store(tmp_path), tiny.word_stimuli()
    trained = from_model(stimuli, folder, store, CPU)
    assert find(stimuli, f"{folder}@random1", store) is None
    control = from_model(stimuli, f"{folder}@random1", store, CPU)
    assert control.layers == trained.layers and control.facts["note"] == "random weights, seed 1"
    assert all(not np.allclose(control[n], trained[n]) for n in control.layers)
