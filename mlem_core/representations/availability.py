"""Whether a model can be had, how large it is, and what its configuration tells of it.

By the name alone nothing is loaded or fetched, and torch stays out, so that a form can ask while
somebody types. A table of systems takes the configurations of models that are fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.representations import model_paths
from mlem_core.representations.model_paths import read_config
from mlem_core.representations.registry import MODELS, ModelUnavailable, base_name, locate

# Of each property the names that configurations have for it.
_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocabulary": ("vocab_size",),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "activation"),
}


@dataclass(frozen=True)
class Shape:
    """The size of a model.

    Attributes
    ----------
    blocks : one fewer than its layers
    width : units of a layer
    recurrent : whether its blocks go through a sentence token by token
    quantised : whether its weights have to be made numbers first
    """

    blocks: int
    width: int
    recurrent: bool = False
    quantised: bool = False


# Of models that are not here yet, and of one whose weights are no safetensors.
SHAPES = {
    "smollm2": Shape(30, 576, quantised=True),
    "bert-base-uncased": Shape(12, 768),
    "gpt2": Shape(12, 768),
    "state-spaces/mamba-130m-hf": Shape(24, 768, recurrent=True),
}
_RECURRENT = re.compile("mamba|rwkv|recurrent", re.IGNORECASE)


@dataclass(frozen=True)
class ModelAvailability:
    """Whether a model can be had, and what is known of it.

    Attributes
    ----------
    name : as it was given
    label : what it is; "" where that is not known
    where : "here" (nothing has to be fetched), "hub" (it is fetched when it runs), "away" (the hub
        cannot be reached now, or lets others only have it), "nowhere" (there is none such, or it
        cannot be used)
    n_bytes : what is fetched, about; None where nobody knows
    shape : None where nobody knows
    problem : a sentence where it is "away" or "nowhere"
    """

    name: str
    label: str
    where: Literal["here", "hub", "away", "nowhere"]
    n_bytes: int | None = None
    shape: Shape | None = None
    problem: str = ""


def check_availability(name: str) -> ModelAvailability:
    """Whether the model that a name stands for can be had; takes at most some seconds."""
    base = base_name(name)
    known = MODELS.get(base.partition("@")[0])
    label, shape = (known.label if known else ""), SHAPES.get(base.partition("@")[0])
    sizes: list[int] = []

    def fetch(id: str, revision: str | None) -> Path:
        folder = model_paths.cached(id, revision)
        if folder is None:
            sizes.append(model_paths.size(id, revision))
        return folder or Path()

    try:
        files = locate(base, fetch)
        if sizes:
            return ModelAvailability(name, label, "hub", sizes[0], shape)
        files.check_readable(base)
        if shape is None and (files.folder / "config.json").exists():
            config = read_config(base, files.folder)
            properties = _properties(config)
            blocks, width = properties.get("layers"), properties.get("width")
            if isinstance(blocks, int) and isinstance(width, int):
                kind = str(config.get("model_type", ""))
                shape = Shape(blocks, width, bool(_RECURRENT.search(kind)))
        return ModelAvailability(name, label, "here", 0, shape)
    except ModelUnavailable as error:
        fetched = known.megabytes * 1_000_000 if known else None
        return ModelAvailability(name, label, "away", fetched, shape, str(error))
    except (InputError, OSError) as error:
        return ModelAvailability(name, label, "nowhere", None, shape, str(error))


def _properties(config: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of `_KEYS` that a configuration tells."""
    properties: dict[str, Any] = {}
    config = config.get("text_config") or config  # of a multimodal model
    for name, keys in _KEYS.items():
        properties |= next(({name: config[key]} for key in keys if config.get(key) is not None), {})
    return properties


_MAMBA = ("mamba", "mamba2", "bidirectional_mamba")
_WITHOUT_ATTENTION = (*_MAMBA, "rwkv", "recurrent_gemma")
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
    properties = ({"architecture": kind} if kind else {}) | _properties(config)
    n_parameters = _parameters(config)
    if n_parameters is not None:
        properties["parameters"] = n_parameters
    if kind in _WITHOUT_ATTENTION:
        properties |= {"positional_encoding": "none", "attention": "none"}
    elif any(key.startswith("rope_") or key == "rotary_pct" for key in config):
        properties["positional_encoding"] = "rotary"
    elif kind in _LEARNED:
        properties["positional_encoding"] = "learned"
    if kind not in _WITHOUT_ATTENTION and "heads" in properties:
        groups = config.get("num_key_value_heads", properties["heads"])
        properties["attention"] = "multi-head" if groups == properties["heads"] else "grouped-query"
    if "rms_norm_eps" in config or kind in _MAMBA:
        properties["normalisation"] = "RMS norm"
    elif any(key.startswith("layer_norm") for key in config):
        properties["normalisation"] = "layer norm"
    if "tie_word_embeddings" in config:
        properties["tied_embeddings"] = "yes" if config["tie_word_embeddings"] else "no"
    return properties


def _parameters(config: Mapping[str, Any]) -> int | None:
    """Number of parameters without those of an output layer; None of an unknown architecture."""
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        model_config = AutoConfig.for_model(**config)
        with torch.device("meta"):
            model = AutoModel.from_config(model_config)
    except (ValueError, KeyError, TypeError, ImportError):
        return None
    return sum(parameter.numel() for parameter in model.parameters())
