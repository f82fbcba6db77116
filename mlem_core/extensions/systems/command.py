"""The command `systems`: a table of models with their properties."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.cli.streams import complain
from mlem_core.extensions.systems.properties import SYSTEMS
from mlem_core.representations.model_paths import read_config
from mlem_core.representations.registry import SIZE_KEYS, base_name, config_values, locate
from mlem_core.stimuli.stimulus_csv import write_table

# Of each property the names that configurations have for it.
_KEYS = {
    **SIZE_KEYS,
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocabulary": ("vocab_size",),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "activation"),
}
_MAMBA = ("mamba", "mamba2", "bidirectional_mamba")
_WITHOUT_ATTENTION = (*_MAMBA, "rwkv", "recurrent_gemma")
_LEARNED = ("bert", "distilbert", "roberta", "electra", "albert", "gpt2", "gpt_neo", "opt")
COLUMNS = (
    *("system", "group", "architecture", *_KEYS, "parameters", "positional_encoding"),
    *("normalisation", "attention", "tied_embeddings", "family", "release_date"),
    "training_tokens",
)


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", dest="models", action="append", metavar="NAME", help="may be given several times"
    )
    source.add_argument(
        "--preset", choices=list(SYSTEMS), help="a table that comes with the program, as it is"
    )
    command.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")


def write_systems(options: argparse.Namespace) -> None:
    """Write a table of models with the properties that their configurations tell."""
    notes: list[str] = []
    if options.preset:
        table = pd.read_csv(SYSTEMS[options.preset], dtype=str, keep_default_na=False)
    else:
        table, notes = systems_table(options.models)
    write_table(table, Path(options.out))
    complain(*notes)


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
            rows.append({"system": name, **config_properties(config)})
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object), notes


def config_properties(config: Mapping[str, Any]) -> dict[str, Any]:
    """Properties that a config.json tells, those that it does not are left out."""
    kind = str(config.get("model_type", ""))
    properties = ({"architecture": kind} if kind else {}) | config_values(config, _KEYS)
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
