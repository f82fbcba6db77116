"""Layers that are pooled while a pass goes on are those of the whole pass, bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref

import numpy as np
import pytest
import tiny
import torch
from tiny import sentence_stimuli, word_stimuli

from mlem_core.models import forward
from mlem_core.models.extraction import ExtractionOptions, extract
from mlem_core.models.loaded import LoadedModel
from mlem_core.models.pooled import PooledRows, Spans, to_device

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
IDS = torch.tensor([[5, 7, 2, 9], [4, 4, 1, 3]])


def given(loaded: LoadedModel) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    forward.each_layer(loaded, IDS, lambda state: found.append(state.clone()))
    return found


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_layers_are_given_as_the_whole_pass_gives_them(kind, architectures):
    loaded = architectures[kind]
    expected = forward.hidden_states(loaded.model, loaded.n_layers, IDS)
    assert loaded.streams
    for streams in (True, False):
        found = given(dataclasses.replace(loaded, streams=streams))
        assert len(found) == len(expected) == 4
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "mamba"])
def test_no_layer_is_kept_once_it_is_taken(kind, architectures):
    loaded, layers, alive = architectures[kind], [], []

    def take(state: torch.Tensor) -> None:
        alive.append(sum(layer() is not None for layer in layers))
        layers.append(weakref.ref(state))

    forward.each_layer(loaded, IDS, take)
    # At most the one before, which the block that is done may still hold.
    assert max(alive) <= 1
    assert sum(layer() is not None for layer in layers) == 0
    layers, alive = [], []
    forward.each_layer(dataclasses.replace(loaded, streams=False), IDS, take)
    assert max(alive) == 3


def test_a_model_of_which_blocks_do_not_tell_is_not_streamed(architectures):
    class Shifted(torch.nn.Module):
        """Its second hidden state is not what enters its second block."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model, self.config = model, model.config
            self.device = model.device

        def forward(self, **options):
            output = self.model(**options)
            first, second, *others = output.hidden_states
            output.hidden_states = (first, second + 1, *others)
            return output

    model = architectures["gpt2"].model
    assert forward.count_blocks("gpt2", model) == (3, True)
    assert forward.count_blocks("shifted", Shifted(model)) == (3, False)


@pytest.mark.parametrize("pooling", ["standard", "mean", "last"])
def test_representations_are_the_same_bits_streamed_or_not(pooling, architectures, tmp_path):
    stimuli = sentence_stimuli() if pooling == "last" else word_stimuli()
    kinds = ("gpt2", "mamba", "t5")
    for kind in kinds:
        for streams in (True, False):
            loaded = dataclasses.replace(architectures[kind], streams=streams)
            folder = tmp_path / f"{kind}-{streams}"
            folder.mkdir()
            extract(stimuli, loaded, folder, ExtractionOptions(pooling=pooling))
        for layer in sorted((tmp_path / f"{kind}-True").iterdir()):
            expected = tmp_path / f"{kind}-False" / layer.name
            assert layer.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("several", [False, True])
def test_pooled_rows_are_means_over_their_tokens(several, dtype, device):
    rng = np.random.default_rng(0)
    states = [torch.from_numpy(rng.standard_normal((3, 6, n))).to(dtype) for n in (5, 2)]
    first, last = np.array([0, 2, 5, 1]), np.array([3, 2, 5, 4])
    spans = Spans(np.array([2, 0, 0, 1]), first if several else last, last)
    copies = torch.cuda.Stream(device) if device != "cpu" else None
    pooled = PooledRows(spans, 6, device, copies)
    for state in states:
        pooled.take(to_device(state.float().numpy(), device).to(dtype))
    for state, found in zip(states, pooled.arrays(), strict=True):
        assert found.dtype == np.float32 and found.shape == (4, state.shape[2])
        for row, (sentence, begin, end) in zip(found, zip(*spans, strict=True), strict=True):
            tokens = state[sentence, begin : end + 1].double().numpy()
            np.testing.assert_allclose(row, tokens.mean(axis=0), rtol=1e-5, atol=1e-6)


class Copies:
    """A stream that notes what it is asked for, in order."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def wait_stream(self, other: object) -> None:
        self.log.append(f"wait for {other}")

    def record_event(self) -> Copies:
        self.log.append("event")
        return self

    def synchronize(self) -> None:
        self.log.append("synchronize")


def test_rows_are_copied_when_they_are_computed_and_given_when_they_are_copied(monkeypatch):
    """The order of what a GPU is asked for; no GPU is needed to see it."""
    log: list[str] = []
    empty, copy = torch.empty, torch.Tensor.copy_

    def pinned(*shape, pin_memory=False, **options):
        assert pin_memory
        return empty(*shape, **options)

    def copied(there, rows, non_blocking=False):
        assert non_blocking
        log.append("copy")
        return copy(there, rows)

    monkeypatch.setattr(torch, "empty", pinned)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda rows, _: log.append("keep"))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "the computing")
    spans = Spans(np.array([0, 1]), np.array([1, 2]), np.array([1, 2]))
    pooled = PooledRows(spans, 3, "cpu", Copies(log))
    states = [torch.arange(12.0).reshape(2, 3, 2) + k for k in range(2)]
    for state in states:
        pooled.take(state)
    a_layer = ["wait for the computing", "copy", "keep", "event"]
    assert log == ["event", *a_layer, *a_layer]
    for state, found in zip(states, pooled.arrays(), strict=True):
        np.testing.assert_array_equal(found, state[[0, 1], [1, 2]])
    assert log[-1] == "synchronize"


def test_a_batch_is_waited_for_when_the_next_has_begun(architectures, tmp_path, monkeypatch):
    log: list[str] = []
    begin, arrays = forward.each_layer, PooledRows.arrays
    monkeypatch.setattr(forward, "each_layer", lambda *a: (log.append("begin"), begin(*a))[1])
    monkeypatch.setattr(PooledRows, "arrays", lambda own: (log.append("wait"), arrays(own))[1])
    extract(word_stimuli(), architectures["gpt2"], tmp_path)
    n = log.count("begin")
    assert n > 2 and log == ["begin", *["begin", "wait"] * (n - 1), "wait"]
