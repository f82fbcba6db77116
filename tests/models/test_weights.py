"""Weights that are packed, of GGUF files, random, read both ways; and surprisal."""

import math

import gguf
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from inputs import refused

from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.models.bidirectional import BidirectionalMambaConfig, BidirectionalMambaModel
from mlem_core.models.forward import hidden_states, quietly
from mlem_core.models.loading import load_with_head, open_model, read_once, read_packed
from mlem_core.models.registry import locate
from mlem_core.models.surprisal import surprisal, word_surprisal
from mlem_core.models.tokens import tokenize
from training.packed import GROUP, pack

# --- packed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "steps"), [(8, 127), (4, 7)])
@pytest.mark.parametrize("shape", [(3, 1, 4), (64, 33)])
def test_no_weight_is_off_by_more_than_half_a_step_of_its_scale(bits, steps, shape, tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=shape).astype(np.float32), "b": rng.normal(size=6)}
    pack(weights, tmp_path / "w.safetensors", bits)
    found = {
        name: tensor.numpy() for name, tensor in read_packed(tmp_path / "w.safetensors").items()
    }
    assert found.keys() == weights.keys() and found["w"].shape == shape
    assert np.array_equal(found["b"], weights["b"].astype(np.float16).astype(np.float32))
    flat = weights["w"].ravel()
    size = flat.size // shape[0] if bits == 8 else GROUP
    for first in range(0, flat.size, size):
        own, back = (array.ravel()[first : first + size] for array in (weights["w"], found["w"]))
        step = np.abs(own).max() / steps
        assert np.abs(own - back).max() <= 0.5 * step * 1.01 + steps * step * 2**-11


@pytest.mark.parametrize("content", [b"", b"no safetensors file", b"\x10\0\0\0\0\0\0\0{}"])
def test_a_broken_file_is_said(content, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(content)
    with refused("w.safetensors", "packed weights"):
        read_packed(tmp_path / "w.safetensors")


# --- GGUF -------------------------------------------------------------------------------------


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
        assert (mine.data, mine.types) == (field.data, field.types)
        for k in field.data[:50]:
            np.testing.assert_array_equal(mine.parts[k], field.parts[k])
    for mine, tensor in zip(ours.tensors, theirs.tensors, strict=True):
        assert (mine.name, mine.tensor_type) == (tensor.name, tensor.tensor_type)
        np.testing.assert_array_equal(mine.data[:2], tensor.data[:2])


# --- random -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save("llama", tmp_path_factory.mktemp("llama")))


def weights(name):
    opened = open_model(name, "cpu")
    return {key: value for key, value in opened.model.state_dict().items() if value.ndim == 2}


def test_a_seed_is_one_set_of_weights(folder):
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


# --- the bidirectional Mamba ------------------------------------------------------------------


def model():
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "state_size": 4, "intermediate_size": 24}
    with quietly():
        config = BidirectionalMambaConfig(num_hidden_layers=3, **sizes)
        made = BidirectionalMambaModel(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return made


def test_reversed_text_with_its_halves_swapped_gives_reversed_states():
    made, swapped, ids = model(), model(), torch.tensor([[5, 6, 7, 8, 9], [10, 11, 5, 5, 12]])
    for layer in swapped.layers:
        layer.left, layer.right = layer.right, layer.left
    for ours, theirs in zip(
        hidden_states(made, 3, ids), hidden_states(swapped, 3, ids.flip(1)), strict=True
    ):
        torch.testing.assert_close(ours, theirs.flip(1))


# --- surprisal --------------------------------------------------------------------------------


SENTENCES = ["the grandmother hesitated", "why did Christopher whisper", "the men sing"]
STIMULI = from_frame(
    pd.DataFrame(
        [(s, i, len(w), w) for s in SENTENCES for i, w in enumerate(s.split())],
        columns=["sentence", "word_index", "f", "g"],
    ),
    "words",
)


@pytest.mark.parametrize("name", ["mini-gpt2", pytest.param("mini-mamba", marks=pytest.mark.slow)])
def test_surprisal_is_transformers_own_loss_on_the_tokens_of_the_word(name):
    loaded = open_model(name, "cpu")
    model = load_with_head(loaded)
    tokenized = tokenize(STIMULI, loaded, "start")
    expected = []
    for row in range(len(STIMULI)):
        sentence = next(i for i, rows in enumerate(tokenized.stimuli) if row in rows)
        ids = torch.from_numpy(tokenized.tokens[sentence])[None]
        first, last = tokenized.spans[row]
        labels = torch.full_like(ids, -100)
        labels[0, first : last + 1] = ids[0, first : last + 1]
        with torch.inference_mode():
            loss = model(input_ids=ids, labels=labels).loss
        expected.append(float(loss) * (last - first + 1) / math.log(2))
    found = surprisal(STIMULI, name, "cpu")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len({last - first for first, last in tokenized.spans}) > 1  # words of several tokens


def test_without_a_start_token_the_first_word_is_missing():
    loaded = open_model("mini-gpt2", "cpu")
    found = word_surprisal(tokenize(STIMULI, loaded, "none"), loaded, load_with_head(loaded))
    np.testing.assert_array_equal(np.isnan(found), STIMULI.word_index == 0)


def test_what_has_no_surprisal():
    with refused("mini-bert"):
        surprisal(STIMULI, "mini-bert", "cpu")
    with refused("words"):
        surprisal(datasets.load("relative-clauses"), "mini-gpt2", "cpu")
