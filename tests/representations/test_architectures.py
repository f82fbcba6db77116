"""Right for every architecture, against transformers' own hidden states."""

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.inputs import RIDGE, refused
from helpers.tiny import close, sentence_stimuli, word_stimuli

from mlem_core import AnalysisSpec, run, write_csv
from mlem_core.representations import forward, registry
from mlem_core.representations.extraction import ExtractionOptions, input_batches
from mlem_core.representations.forward import hidden_states, quietly
from mlem_core.representations.layers import from_model
from mlem_core.representations.loading import DTYPES, load_with_head, open_model
from mlem_core.representations.registry import Shape, check_availability
from mlem_core.storage.store import Store

# What takes positions from outside.
COUNTED = ("llama", "gpt2", "gpt_neox", "bert")


def first_token(loaded):
    """Where a sentence begins, behind the tokens that are added before it."""
    tokenizer = loaded.tokenizer
    alone: int = tokenizer("A", add_special_tokens=False)["input_ids"][0]
    return int(tokenizer("A")["input_ids"].index(alone))


def last_token(loaded, sentence, word):
    """By another way than ours: how many tokens there are when the sentence ends there."""
    tokenizer = loaded.tokenizer
    until = " ".join(sentence.split()[: word + 1])
    return first_token(loaded) + len(tokenizer(until, add_special_tokens=False)["input_ids"]) - 1


def state_of(loaded, ids):
    """transformers' last hidden state (tokens, units) of a text or of the numbers of its tokens."""
    if isinstance(ids, str):
        ids = loaded.tokenizer(ids)["input_ids"]
    with torch.inference_mode():
        return loaded.model(torch.as_tensor(ids)[None]).last_hidden_state[0]


def places_of(stimuli):
    """Of each stimulus its row, its sentence and its place in it."""
    return zip(range(len(stimuli)), stimuli.sentences, stimuli.word_index, strict=True)


def padded_states(loaded, sentences, side):
    """transformers' hidden states of one padded batch, and where each sentence begins in it."""
    loaded.tokenizer.padding_side = side
    if loaded.tokenizer.pad_token is None:
        loaded.tokenizer.pad_token = loaded.tokenizer.eos_token
    encoded = loaded.tokenizer(sentences, padding=True, return_tensors="pt")
    mask = encoded["attention_mask"]
    inputs = {"input_ids": encoded["input_ids"], "attention_mask": mask}
    if side == "left" and loaded.model.config.model_type in COUNTED:
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        states = loaded.model(**inputs, output_hidden_states=True).hidden_states
    starts = np.zeros(len(sentences), int) if side == "right" else (1 - mask).sum(1).numpy()
    return [state.numpy() for state in states], starts


# transformers counts the layers of Mamba otherwise: its class is held to that below. A Mamba that
# reads from both sides would read the padding too.
@pytest.mark.parametrize(
    ("name", "side"),
    [
        pytest.param(name, side, marks=[pytest.mark.slow] * (not name.startswith("mini-")))
        for name in registry.packaged()
        for side in (("left",) if name == "smollm2" else ("left", "right"))
        if "mamba" not in name
    ],
)
def test_a_packaged_model_gives_what_a_padded_batch_gives(name, side, tmp_path):
    loaded, stimuli = tiny.opened(name), word_stimuli()
    ours = from_model(stimuli, loaded, Store(tmp_path))
    states, starts = padded_states(loaded, tiny.SENTENCES, side)
    sentences = [tiny.SENTENCES.index(sentence) for sentence in stimuli.sentences]
    tokens = [last_token(loaded, sentence, word) for _, sentence, word in places_of(stimuli)]
    assert len(ours.layers) == len(states)
    for layer, state in zip(ours.layers, states, strict=True):
        close(ours[layer], state[sentences, starts[sentences] + tokens])


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_other_poolings_are_means_and_last_tokens_of_transformers(kind, architectures, tmp_path):
    loaded, store = architectures[kind], Store(tmp_path)
    stimuli = word_stimuli(["Did they see theyverya elephants?", "The old dogs and cats run."])
    ours = from_model(stimuli, loaded, store, ExtractionOptions(pooling="mean"))
    last = from_model(stimuli, loaded, store)
    pieces = []
    for row, sentence, word in places_of(stimuli):
        ids = loaded.tokenizer(sentence)["input_ids"]
        state = state_of(loaded, ids)
        # All words are stimuli: a word begins where the one before it ends.
        begin = last_token(loaded, sentence, word - 1) + 1 if word else first_token(loaded)
        end = last_token(loaded, sentence, word) + 1
        # A token that is only the space before the word has nothing of the word.
        while loaded.tokenizer.convert_ids_to_tokens(ids[begin]) in ("Ġ", "▁"):
            begin += 1
        pieces.append(end - begin)
        close(ours[3][[row]], state[begin:end].mean(dim=0, keepdim=True).numpy())
    assert max(pieces) > 2 and min(pieces) >= 1
    assert not np.allclose(ours[3], last[3])
    sentences = sentence_stimuli(["Did they see it?", "The old dogs and cats run."])
    found = from_model(sentences, loaded, store, ExtractionOptions(pooling="last"))
    for row, sentence in enumerate(sentences.sentences):
        at = last_token(loaded, sentence, len(sentence.split()) - 1)
        close(found[3][[row]], state_of(loaded, sentence)[[at]].numpy())
    with refused("pooling of a sentence"):
        from_model(sentences, loaded, store, ExtractionOptions(pooling="mean"))


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_every_architecture_gives_what_it_gives_alone(kind, architectures, tmp_path):
    """Against transformers' own hidden states of one sentence at a time; two share a batch."""
    loaded = architectures[kind]
    stimuli = word_stimuli([*tiny.SENTENCES, "The old cat sees a dog."])
    assert max(len(batch) for batch in input_batches(stimuli, loaded)) > 1
    ours = from_model(stimuli, loaded, Store(tmp_path))
    assert ours.layers == (0, 1, 2, 3)
    for row, sentence, word in places_of(stimuli):
        ids = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            output = loaded.model(ids, output_hidden_states=True)
        token = last_token(loaded, sentence, word)
        close(ours[3][[row]], output.last_hidden_state[:, token].numpy())
        embedded = loaded.model.get_input_embeddings()(ids)[:, token].detach().numpy()
        if kind in ("gpt-neox", "llama", "mamba", "mamba2", "rwkv", "t5"):
            close(ours[0][[row]], embedded)  # nothing is added to these before the first block
        else:
            close(ours[0][[row]], output.hidden_states[0][:, token].numpy())
        # The recurrent models of transformers leave the embeddings out.
        shift = 1 if kind in ("mamba", "mamba2", "rwkv") else 0
        for layer in (1, 2):
            close(ours[layer][[row]], output.hidden_states[layer - shift][:, token].numpy())


# What the tokenizer of each family adds, before and after a sentence.
ADDED = {"bert": (1, 1), "roberta": (1, 1), "llama": (1, 0), "t5": (0, 1)}


@pytest.mark.parametrize("choice", ["model", "none", "start"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama", "t5"])  # one of a tokenizer
def test_start_and_end_tokens_are_a_choice(kind, choice, architectures, tmp_path):
    """A sentence is the mean over its own tokens whatever is around them."""
    loaded, store = architectures[kind], Store(tmp_path)
    sentences = [*tiny.SENTENCES, "The old cat sees a dog."]  # two of one length share a batch
    stimuli, options = word_stimuli(sentences), ExtractionOptions(special_tokens=choice)
    before, after = ADDED.get(kind, (0, 0))
    if choice == "start" and kind == "t5":
        with refused("start token", "model and none"):
            from_model(stimuli, loaded, store, options)
        return
    ours = from_model(stimuli, loaded, store, options)
    means = from_model(sentence_stimuli(sentences), loaded, store, options)
    n_start, n_end = {"model": (before, after), "none": (0, 0), "start": (1, after)}[choice]
    start, end = ["[CLS]"] * n_start, ["[SEP]"] * n_end
    special = ours.facts["special_tokens"]
    assert (special["start"], special["end"]) == (start, end)
    start, end = (loaded.tokenizer.convert_tokens_to_ids(tokens) for tokens in (start, end))
    states = {}
    for row, sentence in enumerate(sentences):
        own = loaded.tokenizer(sentence, add_special_tokens=False)["input_ids"]
        assert choice != "model" or loaded.tokenizer(sentence)["input_ids"] == [*start, *own, *end]
        states[sentence] = state_of(loaded, [*start, *own, *end])
        mean = states[sentence][n_start : n_start + len(own)].mean(dim=0, keepdim=True)
        close(means[3][[row]], mean.numpy())
    for row, sentence, word in places_of(stimuli):
        token = last_token(loaded, sentence, word) - before + n_start
        close(ours[3][[row]], states[sentence][[token]].numpy())
    assert choice == "model" or from_model(stimuli, loaded, store).identity != ours.identity


def test_a_tokenizer_that_does_not_tell_where_its_tokens_are(tmp_path):
    """ByT5 has a token a byte, and no offsets."""
    import transformers

    folder = tiny.save("t5", tmp_path / "model", vocab_size=384)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with quietly():
        transformers.ByT5Tokenizer().save_pretrained(folder)
    loaded = open_model(str(folder), "cpu")
    assert not loaded.tokenizer.is_fast
    stimuli = word_stimuli(["The naïve cat."])
    ids = loaded.tokenizer("The naïve cat.")["input_ids"]
    for choice, tokens in (("model", ids), ("none", ids[:-1])):
        options = ExtractionOptions(special_tokens=choice)
        ours = from_model(stimuli, loaded, Store(tmp_path), options)
        close(ours[3], state_of(loaded, tokens)[[2, 9, 14]].numpy())  # ï has two bytes


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_bfloat16(kind, architectures, tmp_path):
    store, stimuli = Store(tmp_path / "store"), word_stimuli()
    folder = tiny.save(kind, tmp_path / "model")
    dtypes = ("bfloat16", "float32")
    options = [ExtractionOptions(device="cpu", dtype=dtype) for dtype in dtypes]
    ours, full = (from_model(stimuli, str(folder), store, one) for one in options)
    assert (ours.facts["dtype"], full.facts["dtype"]) == dtypes
    assert ours.identity != full.identity
    for layer in full.layers:
        assert ours[layer].dtype == np.float32
        error = np.linalg.norm(ours[layer] - full[layer], axis=1)
        assert error.max() > 0 and (error < 0.05 * np.linalg.norm(full[layer], axis=1)).all()


CAUSAL = ("gpt2", "gpt-neox", "llama", "mamba", "mamba2", "rwkv")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_one_left_context_is_one_representation(kind, dtype, architectures, tmp_path):
    """Exactly, where the model sees nothing else, though batches differ in the last bits."""
    loaded = architectures[kind]
    if dtype == "bfloat16":
        loaded = open_model(str(tiny.save(kind, tmp_path / "model")), "cpu", dtype)
    assert loaded.causal == (kind in CAUSAL)
    sentences = ["the dog sees the cat", "the dog sees the old cat now", "the dog sat"]
    ours = from_model(word_stimuli(sentences), loaded, Store(tmp_path / "store"))
    for layer in ours.layers:
        a, b, c = np.split(np.asarray(ours[layer]), [5, 12])
        if kind in CAUSAL:
            np.testing.assert_array_equal(a[:4], b[:4])
            np.testing.assert_array_equal(a[:2], c[:2])
        elif layer > 1:
            assert (a[:4] != b[:4]).any(axis=1).all()
        # Another word is another representation.
        assert np.linalg.norm(a[2] - c[2]) > 0.01 * np.linalg.norm(a[2])


SMALL = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
DECODER = {**SMALL, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {**DECODER, "num_experts_per_tok": 2, "num_experts": 4, "num_local_experts": 4}
EXPERTS |= {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
LATENT = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LATENT |= {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
LATENT |= {"v_head_dim": 8, "num_key_value_heads": 4}
FRENCH = {"vocab_size": 300, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "pad_token_id": 2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("config", "settings", "causal"),
    [
        ("FlaubertConfig", FRENCH, False),  # masks its padding token by itself
        ("XLMConfig", FRENCH, False),
        ("XLMConfig", {**FRENCH, "causal": True}, True),
        ("MixtralConfig", EXPERTS, True),  # which other tokens there are changes the last bits
        ("OlmoeConfig", EXPERTS, True),
        ("Qwen2MoeConfig", EXPERTS, True),
        ("GraniteMoeConfig", EXPERTS, True),
        ("GptOssConfig", EXPERTS, True),
        ("DeepseekV3Config", {**EXPERTS, **LATENT}, True),
        ("ModernBertConfig", {**SMALL, "pad_token_id": 0}, False),
        ("SwitchTransformersConfig", {"vocab_size": 300, "d_model": 32, "num_experts": 4}, False),
    ],
)
def test_whether_a_model_sees_to_the_right(config, settings, causal, dtype, tmp_path):
    folder = tiny.save_class(config, tmp_path / "model", "bytes", **settings)
    loaded = open_model(str(folder), "cpu", dtype)
    assert loaded.causal == causal
    sentences = ["The dog sees.", "The dog runs."]
    ours = from_model(word_stimuli(sentences), loaded, Store(tmp_path / "store"))
    assert ours.facts["causal"] == causal
    a, b = np.split(np.asarray(ours[3]), 2)
    assert (a[:2] == b[:2]).all() == causal
    assert not np.allclose(a[2], b[2])


IMAGES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "image_size": 28}
IMAGES |= {"num_attention_heads": 2, "patch_size": 14}
ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
MERGED = {"embed_dim": 16, "depth": 2, "num_heads": 2, "hidden_size": 32, "patch_size": 14}
LLAMA, TOKENS = (
    {"model_type": "llama", **DECODER},
    {"image_token_id": 290, "image_token_index": 290},
)
VISION = {"vision_config": {"model_type": "clip_vision_model", **IMAGES}}
LLAMA4 = {"vision_config": {**IMAGES, "vision_output_dim": 32, "projector_input_dim": 16}}
LLAMA4["vision_config"] |= {"projector_output_dim": 32}
# Their language models have 3 blocks, and so have the vision models.
MULTIMODAL = {
    "Gemma3Config": {"text_config": DECODER, "vision_config": IMAGES},
    "Mistral3Config": {
        "text_config": {"model_type": "mistral", **DECODER},
        "vision_config": {"model_type": "pixtral", **IMAGES},
    },
    "Qwen2VLConfig": {"text_config": {**DECODER, "rope_parameters": ROPE}, "vision_config": MERGED},
    "LlavaConfig": {"text_config": LLAMA, **VISION},
    "PaliGemmaConfig": {
        "text_config": {"model_type": "gemma", **DECODER},
        "vision_config": {"model_type": "siglip_vision_model", **IMAGES},
    },
    "SmolVLMConfig": {"text_config": LLAMA, "vision_config": IMAGES},
    "Llama4Config": {"text_config": {**EXPERTS, "intermediate_size_mlp": 48}, **LLAMA4},
}


@pytest.mark.parametrize("config", MULTIMODAL)
def test_the_language_model_of_a_multimodal_model_is_used(config, tmp_path):
    import transformers

    folder = tiny.save_class(config, tmp_path / "model", "bytes", **MULTIMODAL[config], **TOKENS)
    loaded = open_model(str(folder), "cpu")
    causal = config != "PaliGemmaConfig"  # which reads all that it is given from both sides
    assert (loaded.n_layers, loaded.causal, loaded.streams) == (3, causal, True)
    ours = from_model(word_stimuli(["The old dog sees a cat."]), loaded, Store(tmp_path / "store"))
    with quietly(), torch.inference_mode():
        full = transformers.AutoModel.from_pretrained(folder)
        if config == "Llama4Config":
            full = full.language_model.model
        ids = loaded.tokenizer("The old dog sees a cat.", return_tensors="pt")["input_ids"]
        states = full(input_ids=ids).last_hidden_state[0].numpy()
    close(ours[3][-1:], states[-1:])
    assert check_availability(str(folder)).shape == Shape(3, 32)
    if config == "Gemma3Config":
        block = forward._blocks(load_with_head(loaded), 3)[0]
        assert type(block) is type(forward._blocks(loaded.model, 3)[0])


TWINS = {"text_config": {**SMALL, "intermediate_size": 48}, "vision_config": IMAGES}
LONG = {**SMALL, "intermediate_size": 48, "attention_window": 16, "pad_token_id": 0}
LED = {"encoder_layers": 3, "decoder_layers": 1, "attention_window": 16, "d_model": 32}
XLNET = {"vocab_size": 300, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48}


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ("CLIPConfig", TWINS),
        ("LongformerConfig", LONG),
        ("LEDConfig", {**LED, "vocab_size": 300, "encoder_attention_heads": 4}),
        ("XLNetConfig", XLNET),
    ],
)
def test_models_whose_blocks_get_other_states_than_their_layers(config, settings, tmp_path):
    """Their states are padded to a window, have other axes, or lack the final norm."""
    loaded = open_model(str(tiny.save_class(config, tmp_path / "m", "bytes", **settings)), "cpu")
    assert (loaded.n_layers, loaded.causal, loaded.streams) == (3, *[config == "CLIPConfig"] * 2)
    stimuli = word_stimuli(["The old dog sees a cat."])
    ours = from_model(stimuli, loaded, Store(tmp_path / "store"))
    with torch.inference_mode():
        ids = loaded.tokenizer("The old dog sees a cat.", return_tensors="pt")["input_ids"]
        output = loaded.model(input_ids=ids, output_hidden_states=True)
    close(ours[3][-1:], output.last_hidden_state[0, -1:].numpy())
    for layer in range(3):
        close(ours[layer][-1:], output.hidden_states[layer][0, -1:].numpy())


CHARACTERS = {**SMALL, "intermediate_size": 48, "max_position_embeddings": 64}
BOXES = {**SMALL, "intermediate_size": 48}


@pytest.mark.parametrize(
    ("config", "settings", "facts"),
    [
        ("CanineConfig", CHARACTERS, ("embedding of each token",)),
        ("BrosConfig", BOXES, ("cannot be run on text alone", "bbox")),
        ("DPRConfig", BOXES, ("cannot be run on text alone",)),
    ],
)
def test_a_model_that_cannot_be_used_leaves_the_others_in_the_run(
    config, settings, facts, tmp_path, store
):
    folder = str(tiny.save_class(config, tmp_path / "model", "bytes", **settings))
    with refused(folder, *facts):
        open_model(folder, "cpu")
    write_csv(word_stimuli(), tmp_path / "words.csv")
    spec = AnalysisSpec(str(tmp_path / "words.csv"), models=(folder, "mini-gpt2"), folds=3, **RIDGE)
    analysis = run(spec, store)
    assert {model for model, _ in analysis.layers} == {"mini-gpt2"}
    assert [note for note in analysis.notices if note.startswith(f"{folder} was left out: ")]


PLACES = {
    "bert": ("encoder.layer", None),
    "roberta": ("encoder.layer", None),
    "gpt2": ("h", "ln_f"),
    "gpt-neox": ("layers", "final_layer_norm"),
    "llama": ("layers", "norm"),
    "mamba": ("layers", "norm_f"),
    "mamba2": ("layers", "norm_f"),
    "rwkv": ("blocks", "ln_out"),
    "t5": ("block", "final_layer_norm"),
}


@pytest.mark.parametrize("kind", tiny.ARCHITECTURES)
def test_what_each_layer_is(kind, architectures):
    """Layer 0 enters block 1, layer k leaves block k, the last one has passed the final norm."""
    loaded = architectures[kind]
    place, norm_place = PLACES[kind]
    blocks = list(loaded.model.get_submodule(place))
    entered: list[torch.Tensor] = []
    left: list[torch.Tensor] = []

    def note(module, args, kwargs, output):
        entered.append(args[0] if args else kwargs["hidden_states"])
        left.append(output if isinstance(output, torch.Tensor) else output[0])

    hooks = [block.register_forward_hook(note, with_kwargs=True) for block in blocks]
    ids = loaded.tokenizer("The old dog sees a cat.", return_tensors="pt")["input_ids"]
    states = hidden_states(loaded.model, loaded.n_layers, ids)
    for hook in hooks:
        hook.remove()
    expected = [entered[0], *left]
    if norm_place is not None:
        with torch.inference_mode():
            expected[3] = loaded.model.get_submodule(norm_place)(left[2])
        assert (states[3] - left[2]).abs().max() > 1e-3
    assert len(states) == 4
    for ours, theirs in zip(states, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
