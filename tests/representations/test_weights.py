"""Weights packed, of GGUF, random, read both ways; surprisal; layers kept and as a pass goes on."""

import dataclasses
import itertools
import json
import math
import shutil
import sys
import types

import gguf
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers
from helpers import tiny
from helpers.inputs import for_each, refused
from helpers.tiny import close, sentence_stimuli, word_stimuli

from mlem_core import Store, from_frame, write_csv
from mlem_core.analysis.source import StimulusSource
from mlem_core.extensions.text_features.surprisal import begins_word, surprisal
from mlem_core.representations import forward
from mlem_core.representations import layers as representations
from mlem_core.representations.bidirectional import (
    BidirectionalMambaConfig,
    BidirectionalMambaModel,
)
from mlem_core.representations.extraction import ExtractionOptions
from mlem_core.representations.forward import hidden_states, quietly
from mlem_core.representations.layers import from_model
from mlem_core.representations.loading import load_with_head, open_model, read_once, read_packed
from mlem_core.representations.predictions import word_predictions
from mlem_core.representations.registry import locate
from mlem_core.representations.tokens import (
    POOLINGS,
    Mean,
    Pooling,
    TokenizedStimuli,
    tokenize,
)
from training.packed import GROUP, pack


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
    # What predicts tokens is the control too.
    with_head = load_with_head(open_model(f"{folder}@random1", "cpu")).model.state_dict()
    assert all(torch.equal(with_head[key], value) for key, value in other.items())


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
    np.testing.assert_allclose(surprisal(STIMULI, name, "cpu"), expected, rtol=1e-4)
    assert len({last - first for first, last in tokenized.spans}) > 1  # words of several tokens


class ClosedVocabulary(torch.nn.Module):
    """A model with its head in which a word has at most two tokens after its first."""

    def __init__(self, model, inside):
        super().__init__()
        self.model, self.inside = model, torch.tensor(inside)

    def forward(self, input_ids):
        output = self.model(input_ids=input_ids)
        inside = torch.isin(input_ids, self.inside)
        full = inside & torch.nn.functional.pad(inside, (1, 0))[:, :-1]
        closed = full[..., None] & torch.isin(torch.arange(output.logits.shape[2]), self.inside)
        output.logits = output.logits.masked_fill(closed, -torch.inf)
        return output


def test_probabilities_of_all_words_of_a_closed_vocabulary_add_up_to_1(architectures):
    """Each first token, alone and before every one or two that go on with a word."""
    torch.manual_seed(0)
    with quietly():
        config = transformers.GPT2Config(vocab_size=8, n_embd=16, n_layer=2, n_head=2)
        model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_()
    end, firsts, inside = 0, (1, 2, 3), (4, 5, 6, 7)
    tails = [(), *itertools.product(inside), *itertools.product(inside, inside)]
    every = [(first, *tail) for first in firsts for tail in tails]
    for context in ((end,), (end, 2, 4), (end, 1, 3, 5, 6)):
        ids = [np.array([*context, *word]) for word in every]
        spans = np.array([(len(context), len(each) - 1) for each in ids])
        rows = [np.array([row]) for row in range(len(every))]
        tokens = TokenizedStimuli(ids, rows, spans, "word", ([], []), 0)
        asked = tokens, architectures["gpt2"], ClosedVocabulary(model, inside)
        begins = np.array([end, *firsts])
        bits = word_predictions(*asked, begins=begins).surprisal
        # The text may end in the place of another word.
        with torch.inference_mode():
            ends = asked[2](torch.tensor([context])).logits[0, -1].softmax(-1)
        assert (2**-bits).sum() + ends[end] / ends[begins].sum() == pytest.approx(1, abs=1e-5)
        assert abs((2 ** -word_predictions(*asked).surprisal).sum() - 1) > 0.01


def test_surprisal_of_a_whole_word_has_the_chances_that_it_begins_and_ends(architectures, tmp_path):
    """By another way to the tokens that begin with white space: what they are as text."""
    loaded = architectures["gpt2"]
    tokenizer, model = loaded.tokenizer, load_with_head(loaded)
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    texts = [tokenizers.decoders.ByteLevel().decode([name]) for name in names]
    begins = [text[:1] in [*" \n\t\r"] or text in tokenizer.all_special_tokens for text in texts]
    tokens = tokenize(STIMULI, loaded, "start")
    expected = surprisal(STIMULI, loaded.name, "cpu")
    for sentence, rows in enumerate(tokens.stimuli):
        ids = torch.from_numpy(tokens.tokens[sentence])[None]
        with torch.inference_mode():
            chances = model(input_ids=ids).logits[0].double().softmax(-1)[:, begins].sum(-1).log2()
        for row in rows:
            first, last = tokens.spans[row]
            inside = begins[ids[0, first]]
            expected[row] += float((chances[first - 1] if inside else 0) - chances[last])
    write_csv(STIMULI, tmp_path / "words.csv")
    source = StimulusSource(str(tmp_path / "words.csv"), add=(f"word_surprisal:{loaded.name}",))
    found = source.load_stimuli().values("word_surprisal_gpt2")
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@for_each("kind, spaced", ("gpt2", True), ("llama", True), ("bert", False))
def test_tokens_that_begin_with_a_space_tell_where_words_end(kind, spaced, architectures):
    loaded = architectures[kind]
    if not spaced:
        with refused("no token", "begins with a space", "word_surprisal"):
            begins_word(loaded)
        return
    ids = loaded.tokenizer("The old dog sees a cat.", add_special_tokens=False)["input_ids"]
    begins = np.isin(ids, begins_word(loaded))
    assert begins[1:].sum() == 5  # a token for each space, at least


def test_without_a_start_token_the_first_word_is_missing():
    loaded = open_model("mini-gpt2", "cpu")
    tokens = tokenize(STIMULI, loaded, "none")
    found = word_predictions(tokens, loaded, load_with_head(loaded)).surprisal
    np.testing.assert_array_equal(np.isnan(found), STIMULI.word_index == 0)


# Sentences of equally many tokens, which share a batch.
ALIKE = [f"The old dog sees a cat{letter}" for letter in "abcdefghijklm"]


class Counting(torch.nn.Module):
    """A model that notes what goes through it, and has room for so many inputs at once."""

    def __init__(self, model, room=10**9):
        super().__init__()
        self.model = model
        self.config = model.config
        self.room = room
        self.seen: list[int] = []

    def get_input_embeddings(self):
        return self.model.get_input_embeddings()

    def forward(self, input_ids, **more):
        if len(input_ids) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.seen.append(len(input_ids))
        return self.model(input_ids=input_ids, **more)


def counting(loaded, room=10**9):
    model = Counting(loaded.model, room)
    return dataclasses.replace(loaded, model=model), model


def test_other_features_need_no_model_other_words_do(architectures, tmp_path):
    loaded, store = architectures["gpt2"], Store(tmp_path)
    first = from_model(word_stimuli(), loaded, store)
    broken = dataclasses.replace(loaded, model=None)
    again = from_model(word_stimuli(other=list(range(len(word_stimuli())))), broken, store)
    assert again.identity == first.identity
    assert np.array_equal(again[2], first[2])
    found = representations.kept_states(word_stimuli(), broken, store)
    assert found is not None and np.array_equal(found[1], first[1])
    assert representations.kept_states(word_stimuli(tiny.SENTENCES[:2]), broken, store) is None
    with pytest.raises(AttributeError):
        from_model(word_stimuli(tiny.SENTENCES[:2]), broken, store)
    with pytest.raises(AttributeError):
        from_model(word_stimuli(), dataclasses.replace(broken, identity="other"), store)


def test_a_batch_is_halved_until_it_fits_and_what_never_does_is_named(architectures, tmp_path):
    whole = from_model(word_stimuli(ALIKE), architectures["gpt2"], Store(tmp_path / "a"))
    loaded, model = counting(architectures["gpt2"], room=2)
    halved = from_model(word_stimuli(ALIKE), loaded, Store(tmp_path / "b"))
    assert sum(model.seen) == len(ALIKE) and max(model.seen) <= 2
    for layer in whole.layers:
        close(halved[layer], whole[layer])
    with refused("row 21", "memory of cpu"):
        from_model(word_stimuli(), counting(loaded, room=0)[0], Store(tmp_path / "c"))


@for_each(
    "stimuli, facts",
    (word_stimuli(["A cat.", "dog " * 600]), ("row 3", "602 tokens", "512")),
    # A zero-width space is no white space, and this tokenizer drops it.
    (word_stimuli(["A cat.", "A \u200b cat."]), ("row 4", "no token")),
    (sentence_stimuli(["A cat.", "\u200b"]), ("row 2", "finds nothing")),
)
def test_what_a_model_does_not_read_is_named(stimuli, facts, tmp_path):
    with refused(*facts):
        from_model(stimuli, tiny.opened("minilm"), Store(tmp_path))


def test_a_model_that_gives_nan(architectures, tmp_path):
    loaded = open_model(str(tiny.save("gpt2", tmp_path / "model")), "cpu")
    with torch.no_grad():
        loaded.model.h[1].ln_2.weight[0] = float("nan")
    with refused("NaN", "layer 2"):
        from_model(word_stimuli(), loaded, Store(tmp_path))


@pytest.mark.parametrize("when", ["before it is loaded", "in the run"])
def test_nothing_is_kept_of_a_model_that_changes(when, tmp_path, monkeypatch):
    a, b = (tiny.save("gpt2", tmp_path / name) for name in "ab")
    weights = safetensors.numpy.load_file(b / "model.safetensors")
    other = {name: -values for name, values in weights.items()}
    safetensors.numpy.save_file(other, b / "model.safetensors", {"format": "pt"})
    folder, store, stimuli = tmp_path / "model", Store(tmp_path / "store"), word_stimuli()

    def put(model):
        shutil.copytree(model, folder, dirs_exist_ok=True)

    def then(name):
        known = getattr(representations, name)
        return lambda *args: (put(b), known(*args))[1]

    put(a)
    name = "open_model" if when == "before it is loaded" else "extract"
    with monkeypatch.context() as patch:
        patch.setattr(representations, name, then(name))
        with refused("changed"):
            from_model(stimuli, str(folder), store)
    put(a)
    assert representations.kept_states(stimuli, str(folder), store) is None
    ours, theirs = (from_model(stimuli, str(one), store) for one in (folder, b))
    assert ours.identity != theirs.identity and not np.array_equal(ours[1], theirs[1])


def test_a_registered_pooling_is_what_it_says(architectures, tmp_path, monkeypatch):
    loaded, stimuli = architectures["gpt2"], word_stimuli()
    first = Pooling("first", {"word": Mean("first sub-token", lambda first, last: (first, first))})
    monkeypatch.setitem(POOLINGS, "first", first)
    found = from_model(stimuli, loaded, Store(tmp_path), ExtractionOptions(pooling="first"))
    assert found.facts["pooling"] == "first sub-token"
    words = tokenize(stimuli, loaded).spans
    assert words is not None and (words[:, 0] < words[:, 1]).any()
    for row, sentence in enumerate(stimuli.sentences):
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            state = loaded.model(ids, output_hidden_states=True).hidden_states[1][0]
        close(found[1][[row]], state[[words[row, 0]]].numpy())
    with refused("pooling", "'first'"):
        from_model(sentence_stimuli(), loaded, Store(tmp_path), ExtractionOptions(pooling="first"))


IDS = torch.tensor([[5, 7, 2, 9], [4, 4, 1, 3]])


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_layers_are_given_as_the_whole_pass_gives_them(kind, architectures):
    loaded = architectures[kind]
    expected = forward.hidden_states(loaded.model, loaded.n_layers, IDS)
    assert loaded.streams
    for streams in (True, False):
        layers: list[torch.Tensor] = []
        forward.each_layer(
            dataclasses.replace(loaded, streams=streams),
            IDS,
            lambda state, layers=layers: layers.append(state.clone()),
        )
        assert len(layers) == len(expected) == 4
        assert all(map(torch.equal, layers, expected))


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_some_layers_are_those_of_all_and_no_block_after_them_runs(kind, architectures, tmp_path):
    loaded, stimuli, options = architectures[kind], word_stimuli(), ExtractionOptions(layers=(0, 2))
    stores = [Store(tmp_path / name) for name in "ab"]
    whole = from_model(stimuli, loaded, stores[0])
    ran: list[object] = []
    last = forward._blocks(loaded.model, loaded.n_layers)[-1]
    hook = last.register_forward_hook(lambda *_: ran.append(1))
    some = from_model(stimuli, loaded, stores[1], options)
    hook.remove()
    assert not ran and some.layers == (0, 2) and some.every_layer == whole.layers
    assert some.folder is not None and len(list(some.folder.glob("layer_*"))) == 2
    for store in stores:  # where all are there they are used
        found = representations.kept_states(stimuli, loaded, store, options)
        assert found is not None and all(np.array_equal(found[n], whole[n]) for n in (0, 2))
    again = from_model(stimuli, loaded, stores[1])
    assert all(np.array_equal(again[n], whole[n]) for n in whole.layers)
    none = from_model(stimuli, loaded, Store(tmp_path / "c"), ExtractionOptions(layers=(9,)))
    assert none.layers == (0,) and none.every_layer == whole.layers


@for_each(
    "kind, imports, versions",
    ("mamba", True, {"mamba-ssm": "2.0"}),
    ("mamba2", True, {"mamba-ssm": "2.0"}),
    ("mamba", False, {}),  # installed, but it cannot be imported
    ("bert", True, {}),
)
def test_kernels_are_those_that_were_taken(kind, imports, versions, architectures, monkeypatch):
    monkeypatch.setitem(sys.modules, "mamba_ssm", types.ModuleType("m") if imports else None)
    monkeypatch.setattr(forward.importlib.metadata, "version", lambda package: "2.0")
    assert forward.fast_kernels(architectures[kind].model) == versions


def test_an_adapter_is_merged_into_its_base(folder, tmp_path):
    name = f"{folder}+{tmp_path}"
    with refused("adapter_model.safetensors"):
        open_model(name, "cpu")
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"])
    trained = peft.get_peft_model(base, config)
    with torch.no_grad():
        for key, values in trained.named_parameters():
            if "lora_" in key:
                values.normal_()
    trained.save_pretrained(tmp_path)
    loaded, alone = open_model(name, "cpu"), open_model(folder, "cpu")
    assert loaded.identity != alone.identity and tmp_path.name in loaded.note
    with torch.inference_mode():
        expected = trained.eval()(input_ids=IDS, output_hidden_states=True).hidden_states
    ours = hidden_states(loaded.model, 3, IDS)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours[3], hidden_states(alone.model, 3, IDS)[3], atol=1e-3)


@for_each(
    "base, more, facts",
    ("other", {}, ("is another model's", "size mismatch")),
    ("gpt2", {}, ("is another model's", "q_proj")),
    ("same", {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 2}, ("PREFIX_TUNING", "LORA")),
)
def test_an_adapter_that_does_not_fit_is_refused(folder, base, more, facts, tmp_path):
    peft = pytest.importorskip("peft")
    trained_on = transformers.AutoModelForCausalLM.from_pretrained(folder)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"])
    adapter = tmp_path / "adapter"
    peft.get_peft_model(trained_on, config).save_pretrained(adapter)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    bases = {"same": folder, "other": tmp_path / "wide", "gpt2": tmp_path / "gpt2"}
    if base == "other":
        tiny.save(trained_on.config.model_type, bases[base], hidden_size=128)
    elif base == "gpt2":
        tiny.save("gpt2", bases[base])
    with refused(adapter.name, *facts):
        open_model(f"{bases[base]}+{adapter}", "cpu")
