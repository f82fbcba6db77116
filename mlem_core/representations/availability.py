"""Whether a model can be had, how large it is, and what its configuration tells of it.

By the name alone nothing is loaded or fetched, and torch stays out, so that a form can ask while
somebody types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlem_core.base.errors import InputError
from mlem_core.representations import model_paths
from mlem_core.representations.model_paths import read_config
from mlem_core.representations.registry import MODELS, ModelUnavailable, base_name, locate

# Of the sizes of a model the names that configurations have for them.
SIZE_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
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
            sizes_told = config_values(config, SIZE_KEYS)
            blocks, width = sizes_told.get("layers"), sizes_told.get("width")
            if isinstance(blocks, int) and isinstance(width, int):
                kind = str(config.get("model_type", ""))
                shape = Shape(blocks, width, bool(_RECURRENT.search(kind)))
        return ModelAvailability(name, label, "here", 0, shape)
    except ModelUnavailable as error:
        fetched = known.megabytes * 1_000_000 if known else None
        return ModelAvailability(name, label, "away", fetched, shape, str(error))
    except (InputError, OSError) as error:
        return ModelAvailability(name, label, "nowhere", None, shape, str(error))


def config_values(config: Mapping[str, Any], keys: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Properties that a configuration tells, by the keys that configurations have for each."""
    config = config.get("text_config") or config  # of a multimodal model
    values: dict[str, Any] = {}
    for name, spellings in keys.items():
        values |= next(
            ({name: config[key]} for key in spellings if config.get(key) is not None), {}
        )
    return values
