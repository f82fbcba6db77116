"""Tiny models of every architecture, saved as a user would save them, and the packaged ones."""

import functools
import string
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core import StimulusSet, from_frame
from mlem_core.representations.forward import LoadedModel, quietly
from mlem_core.representations.loading import open_model

SENTENCES = [
    "The old dog sees a cat.",
    "A cat.",
    "Did they ever see unbelievable elephants running here?",
    "Elephants run.",
    "She sees",
    "The dog runs away from the very loud neighbours today.",
]


@functools.cache
def opened(name: str) -> LoadedModel:
    """A packaged model, loaded once however many test files use it."""
    return open_model(name, "cpu")


def train_tokenizer(kind: str) -> Any:
    """A fast tokenizer of one of the families, trained on a few sentences.

    "wordpiece" as BERT's, "bytes" as GPT-2's (no token added), "marked bytes" as RoBERTa's (start
    and end), "unigram" as T5's (end only), "sentencepiece" as Llama's (BPE over the whole text with
    a start token, characters that it does not know as bytes).
    """
    import tokenizers as tk
    from transformers import PreTrainedTokenizerFast

    text = SENTENCES * 3 + list(string.ascii_letters)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    if kind == "wordpiece":
        model = tk.Tokenizer(tk.models.WordPiece(unk_token="[UNK]"))
        model.normalizer = tk.normalizers.BertNormalizer(lowercase=True)
        model.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
        trainer: Any = tk.trainers.WordPieceTrainer(vocab_size=120, special_tokens=special)
    elif kind in ("bytes", "marked bytes"):
        model = tk.Tokenizer(tk.models.BPE())
        model.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.post_processor = tk.processors.ByteLevel(trim_offsets=False)
        alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
        trainer = tk.trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=alphabet
        )
    elif kind == "unigram":
        model = tk.Tokenizer(tk.models.Unigram())
        model.pre_tokenizer = tk.pre_tokenizers.Metaspace()
        trainer = tk.trainers.UnigramTrainer(
            vocab_size=100, special_tokens=special, unk_token="[UNK]"
        )
    else:
        assert kind == "sentencepiece"
        model = tk.Tokenizer(tk.models.BPE(unk_token="[UNK]", byte_fallback=True))
        model.pre_tokenizer = tk.pre_tokenizers.Metaspace()  # for the training alone
        trainer = tk.trainers.BpeTrainer(
            vocab_size=420, special_tokens=[*special, *(f"<0x{i:02X}>" for i in range(256))]
        )
    model.train_from_iterator(text, trainer)
    if kind == "sentencepiece":
        model.pre_tokenizer = None
        model.normalizer = tk.normalizers.Sequence(
            [tk.normalizers.Prepend("▁"), tk.normalizers.Replace(" ", "▁")]
        )
    template = {
        "wordpiece": "[CLS] $A [SEP]",
        "marked bytes": "[CLS] $A [SEP]",
        "unigram": "$A [SEP]",
        "sentencepiece": "[CLS] $A",
    }.get(kind)
    if template is not None:
        model.post_processor = tk.processors.TemplateProcessing(
            single=template,
            special_tokens=[(token, model.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
        )
    named = {} if kind == "unigram" else {"bos_token": "[CLS]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="[UNK]", pad_token="[PAD]", model_max_length=64, **named
    )


def _configs() -> dict[str, tuple[str, str, dict[str, Any]]]:
    small = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 66}
    gpt2 = {"vocab_size": 300, "n_embd": 16, "n_layer": 3, "n_head": 2}
    mamba2 = {**small, "num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1}
    mamba2 |= {"chunk_size": 8}  # it pads each text to whole chunks, of 256 by default
    t5 = {"vocab_size": 300, "d_model": 16, "num_layers": 3, "num_heads": 2, "d_kv": 8, "d_ff": 24}
    return {
        "bert": ("wordpiece", "BertConfig", {**small, **heads}),
        "roberta": ("marked bytes", "RobertaConfig", {**small, **heads, "pad_token_id": 0}),
        "gpt2": ("bytes", "GPT2Config", gpt2),
        "gpt-neox": ("bytes", "GPTNeoXConfig", {**small, **heads}),
        "llama": ("sentencepiece", "LlamaConfig", {**small, **heads, "vocab_size": 420}),
        "mamba": ("bytes", "MambaConfig", small),
        "mamba2": ("bytes", "Mamba2Config", mamba2),
        "rwkv": ("bytes", "RwkvConfig", {**small, "attention_hidden_size": 16}),
        "t5": ("unigram", "T5Config", t5),
    }


ARCHITECTURES = tuple(_configs())


def save(kind: str, folder: Path, **changes: Any) -> Path:
    """Save a tiny model of an architecture with its tokenizer; `changes` go into its config."""
    tokenizer_kind, config_name, settings = _configs()[kind]
    return save_class(config_name, folder, tokenizer_kind, **{**settings, **changes})


def save_class(config_name: str, folder: Path, tokenizer_kind: str, **settings: Any) -> Path:
    """Save a tiny model of a class of configurations of transformers, with a tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    with quietly():
        config = getattr(transformers, config_name)(**settings)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        train_tokenizer(tokenizer_kind).save_pretrained(folder)
    return folder


def word_stimuli(sentences: list[str] = SENTENCES, **columns: list[Any]) -> StimulusSet:
    """Every word of every sentence."""
    rows = [(s, i) for s in sentences for i in range(len(s.split()))]
    table = pd.DataFrame(rows, columns=["sentence", "word_index"])
    table["length"] = [len(s.split()[i]) for s, i in rows]
    return from_frame(table.assign(**columns), "words")


def sentence_stimuli(sentences: list[str] = SENTENCES) -> StimulusSet:
    table = pd.DataFrame({"sentence": sentences, "length": [len(s) for s in sentences]})
    return from_frame(table, "sentences")


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Within 1e-4 of the length of each row."""
    error = np.linalg.norm(np.asarray(ours, dtype=float) - theirs, axis=1)
    assert (error <= 1e-4 * np.linalg.norm(theirs, axis=1)).all(), error.max()
