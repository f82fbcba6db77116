"""Properties of models as their configurations tell them: a table of systems to be completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.models.model_paths import read_config
from mlem_core.models.registry import base_name, locate

# Of each property the names that configurations have for it.
_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocabulary": ("vocab_size",),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "activation"),
}
_RECURRENT = ("mamba", "mamba2", "bidirectional_mamba", "rwkv", "recurrent_gemma")
_LEARNED = ("bert", "distilbert", "roberta", "electra", "albert", "gpt2", "gpt_neo", "opt")
COLUMNS = (
    *("system", "group", "architecture", *_KEYS, "parameters", "positional_encoding"),
    *("normalisation", "attention", "tied_embeddings", "family", "release_date"),
    "training_tokens",
)


def systems_table(models: Iterable[str]) -> tuple[pd.DataFrame, list[str]]:
    """A row a model: its name and what its configuration tells (`COLUMNS`), and what it does not.

    The group, family, release date and number of training tokens stand in no configuration; their
    cells are empty.
    """
    rows, notes = [], list[str]()
    for name in models:
        try:
            folder = locate(base_name(name)).folder
            config = read_config(name, folder)
        except InputError as error:
            notes.append(f"Of {name} only the name is known: {error}")
            rows.append({"system": name})
        else:
            rows.append({"system": name, **told(config)})
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object), notes


def told(config: Mapping[str, Any]) -> dict[str, Any]:
    """Properties that a config.json tells, those that it does not are left out."""
    kind = str(config.get("model_type", ""))
    found: dict[str, Any] = {"architecture": kind} if kind else {}
    for name, keys in _KEYS.items():
        found |= next(({name: config[key]} for key in keys if config.get(key) is not None), {})
    n_parameters = _parameters(config)
    if n_parameters is not None:
        found["parameters"] = n_parameters
    if kind in _RECURRENT:
        found |= {"positional_encoding": "none", "attention": "none"}
    elif any(key.startswith("rope_") or key == "rotary_pct" for key in config):
        found["positional_encoding"] = "rotary"
    elif kind in _LEARNED:
        found["positional_encoding"] = "learned"
    if kind not in _RECURRENT and "heads" in found:
        groups = config.get("num_key_value_heads", found["heads"])
        found["attention"] = "multi-head" if groups == found["heads"] else "grouped-query"
    if "rms_norm_eps" in config or kind in _RECURRENT[:3]:
        found["normalisation"] = "RMS norm"
    elif any(key.startswith("layer_norm") for key in config):
        found["normalisation"] = "layer norm"
    if "tie_word_embeddings" in config:
        found["tied_embeddings"] = "yes" if config["tie_word_embeddings"] else "no"
    return found


def _parameters(config: Mapping[str, Any]) -> int | None:
    """Number of parameters without those of an output layer; None of an unknown architecture."""
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        own = AutoConfig.for_model(**config)
        with torch.device("meta"):
            model = AutoModel.from_config(own)
    except (ValueError, KeyError, TypeError, ImportError):
        return None
    return sum(one.numel() for one in model.parameters())
