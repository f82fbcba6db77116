"""Loading of a model: its tokenizer and its weights, checked, on the chosen device.

Only safetensors and GGUF files are read, never pickled ones, and no code that comes with a model
is run.

The program's own small models are kept in 8 or 4 bits (`training/packed.py`). A matrix has whole
numbers from -127 to 127 (8 bits, one scale for each of its rows) or from -7 to 7 (4 bits, two in a
byte, one scale for each 32 of them); a vector stays float16. The largest weight under a scale is
exact but for float16, and no weight is off by more than half a step.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.base.errors import (
    InputError,
    check_choice,
    errors_as_sentence,
    first_line,
    readable,
    unknown,
)
from mlem_core.representations.forward import (
    LoadedModel,
    count_blocks,
    is_causal,
    longest_input,
    probe_tokens,
    quietly,
    text_model,
)
from mlem_core.representations.model_paths import check_kind, read_config
from mlem_core.representations.registry import ADAPTER, ModelFiles, locate

DTYPES = ("float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
_GGUF_LOCK = threading.RLock()
SCALE = "|scale"  # behind the name of a matrix, the name of its scales


def open_model(name: str, device: str = "auto", dtype: str = "float32") -> LoadedModel:
    """Load a model by name.

    Parameters
    ----------
    name : as `mlem_core.representations.registry` says.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:1".
    dtype : one of `DTYPES`: of the weights and of everything computed from them.

    Raises ModelUnavailable: the hub cannot be reached or does not let us have the model. Raises
    InputError: no such model, or its files cannot be used; the sentence says why.
    """
    check_choice("dtype", dtype, DTYPES)
    with errors_as_sentence(f"the model {name!r} cannot be used"):
        return _open_model(name, resolve_device(device), dtype)


def _open_model(name: str, device: str, dtype: str) -> LoadedModel:
    files = locate(name)
    watched = files.watched()
    if files.packed is not None:
        import mlem_core.representations.bidirectional  # noqa: F401 - transformers has to know its type
    if files.gguf is None:
        check_kind(name, read_config(name, files.folder).get("model_type"))
    files.check_readable(name)
    with quietly(), read_once() if files.gguf else contextlib.nullcontext():
        tokenizer = _load_tokenizer(name, files)
        model = _load_weights(name, files, dtype)
        _check_vocabulary(name, tokenizer, model)
        with errors_as_sentence(f"the model {name!r} does not fit into the memory of {device}"):
            model = model.to(device)
        tokens = probe_tokens(tokenizer, model.config)
        n_layers, streams = count_blocks(name, model, tokens[:-1])
    loaded = LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        identity=watched.digest,
        revision=files.version or watched.digest[:12],
        n_layers=n_layers,
        max_tokens=longest_input(model, tokenizer),
        device=device,
        note=files.note,
        dtype=dtype,
        causal=is_causal(model, n_layers, tokens),
        streams=streams,
        files=watched,
    )
    loaded.check_is(files.identity)
    return loaded


def resolve_device(device: str) -> str:
    """The device to use: "auto" takes CUDA where there is one. Raises `InputError`."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise unknown("device", device, DEVICES)
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r}: torch finds {torch.cuda.device_count()} CUDA devices here; "
            "the choices are auto and cpu" + (", cuda." if torch.cuda.is_available() else ".")
        )
    return device


def _reading(files: ModelFiles) -> dict[str, Any]:
    """Arguments of transformers for reading anything of a model."""
    options = {"gguf_file": files.gguf} if files.gguf else {}
    return {"local_files_only": True, "trust_remote_code": False, **options}


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """A block in which all that opens a GGUF file shares one reading of it.

    transformers reads the header, with each word of the vocabulary, for the tokenizer, for the
    configuration and for the weights, through a memory map that takes long for each word, and makes
    the table of tensor names anew for every module. Here it is read once, as plain bytes.
    """
    import gguf

    class PlainReader(gguf.GGUFReader):
        """gguf's reader on an array that is no memory map for each part of it."""

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = np.asarray(mapped)

    package: Any = gguf
    with _GGUF_LOCK:
        originals = package.GGUFReader, package.get_tensor_name_map
        package.GGUFReader = functools.cache(PlainReader)
        package.get_tensor_name_map = functools.cache(package.get_tensor_name_map)
        try:
            yield
        finally:
            package.GGUFReader, package.get_tensor_name_map = originals


def _load_tokenizer(name: str, files: ModelFiles) -> Any:
    from transformers import AutoTokenizer

    with errors_as_sentence(f"the tokenizer of the model {name!r} cannot be read"):
        tokenizer = AutoTokenizer.from_pretrained(files.folder, **_reading(files))
    if set(tokenizer.get_vocab()) <= {*tokenizer.all_special_tokens, "▁", " "}:
        # What transformers makes up where the vocabulary itself is missing.
        raise InputError(f"the tokenizer of the model {name!r} has no vocabulary.")
    return tokenizer


def load_with_head(loaded: LoadedModel) -> Any:
    """A loaded model with the head that predicts the next token, on the same device.

    One that is not causal has the head that predicts masked tokens.

    Raises InputError: its files have no such head.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForCausalLM if loaded.causal else AutoModelForMaskedLM
    name, files = loaded.name, locate(loaded.name)
    loaded.check_is(files.identity)
    once = read_once() if files.gguf else contextlib.nullcontext()
    with errors_as_sentence(f"the model {name!r} cannot be loaded with its head"), quietly(), once:
        model, report = _open(auto, files, getattr(torch, loaded.dtype))
    if missing := sorted(report.get("missing_keys", ())):
        raise InputError(f"the model {name!r} predicts no token: its weights lack {missing[0]}.")
    loaded.check_is(files.identity)
    model.config.get_text_config().use_cache = False
    return model.eval().requires_grad_(False).to(loaded.device)


def _load_weights(name: str, files: ModelFiles, dtype: str) -> Any:
    import torch
    from transformers import AutoModel, AutoModelForCausalLM

    auto: Any = AutoModel
    if files.adapter is not None:
        # An adapter names its tensors as in the model with the head of its training.
        task = json.loads((files.adapter / ADAPTER[0]).read_bytes()).get("task_type")
        auto = AutoModelForCausalLM if task == "CAUSAL_LM" else AutoModel
    try:
        model, report = _open(auto, files, getattr(torch, dtype))
    except InputError:
        raise
    except Exception as error:
        reason = first_line(error)
        if "ignore_mismatched_sizes" in str(error):
            reason = "its weights have other shapes than its config.json says"
        raise InputError(f"the model {name!r} cannot be loaded: {reason}.") from error
    # Of a multimodal model the language model is used, of one of two halves the encoder: no more
    # may be there. The pooler is fitted after pre-training and has no part in the hidden states.
    part = model if _has_halves(model) else text_model(model)
    prefix = next(f"{path}." if path else "" for path, m in model.named_modules() if m is part)
    unused = (f"{prefix}decoder.",) * _has_halves(part)
    missing = sorted(
        key
        for key in report.get("missing_keys", ())
        if key.startswith(prefix) and "pooler" not in key and not key.startswith(unused)
    )
    if missing:
        raise InputError(
            f"the model {name!r} cannot be used: its weights lack {len(missing)} of the tensors "
            f"that its config.json asks for, such as {missing[0]}."
        )
    model = part.get_encoder() if _has_halves(part) else part
    if model.main_input_name != "input_ids":
        raise InputError(f"the model {name!r} reads {model.main_input_name}, not text.")
    model.config.use_cache = False
    return model.eval().requires_grad_(False)


def _has_halves(model: Any) -> bool:
    return all(getattr(model, half, None) is not None for half in ("encoder", "decoder"))


def _open(auto: Any, files: ModelFiles, numbers: Any) -> tuple[Any, dict[str, Any]]:
    """(model, what transformers tells of its loading) by one of transformers' auto classes.

    With a seed it has the weights that its training would start from, and no adapter.
    """
    import torch
    from transformers import AutoConfig

    if files.seed is not None:
        config = AutoConfig.from_pretrained(files.folder, **_reading(files))
        # The random numbers of whoever calls stay as they were.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(files.seed)
            return auto.from_config(config, dtype=torch.float32).to(numbers), {}
    options = {"dtype": numbers, "output_loading_info": True}
    if files.packed is not None:
        config = AutoConfig.from_pretrained(files.folder, **_reading(files))
        state = read_packed(files.folder / files.packed)
        # The auto classes want a folder; the class that they would take does not.
        model_class = type(auto.from_config(config))
        opened = model_class.from_pretrained(None, config=config, state_dict=state, **options)
    else:
        # Formats are recognised by what is in the folder, never by what transformers prefers.
        safe = {} if files.gguf else {"use_safetensors": True}
        opened = auto.from_pretrained(files.folder, **_reading(files), **safe, **options)
    model, report = opened
    return model if files.adapter is None else _with_adapter(model, files.adapter), report


def _with_adapter(model: Any, folder: Path) -> Any:
    """A model with an adapter merged into its weights; `InputError` where it does not fit."""
    try:
        import peft
    except ImportError as error:
        raise InputError(
            f"the adapter {folder.name!r} needs the package peft, which is not installed: "
            "pip install -r requirements-adapters.txt."
        ) from error
    config = peft.PeftConfig.from_pretrained(str(folder))
    if config.is_prompt_learning:
        raise InputError(
            f"the adapter {folder.name!r} ({config.peft_type.value}) adds tokens, not weights; "
            "expected one that can be merged, such as LORA."
        )
    misfit = f"the adapter {folder.name!r} is another model's: "
    try:
        wrapped = peft.get_peft_model(model, config)
        weights = peft.load_peft_weights(str(folder), device="cpu")
        result = peft.set_peft_model_state_dict(wrapped, weights)
    except (RuntimeError, ValueError) as error:  # other shapes, other names of modules
        raise InputError(f"{misfit}{' '.join(str(error).split())[:300]}.") from error
    lost = [key for key in result.missing_keys if "lora_" in key]
    if wrong := sorted([*result.unexpected_keys, *lost]):
        raise InputError(f"{misfit}{len(wrong)} of its tensors do not fit, such as {wrong[0]}.")
    return wrapped.merge_and_unload()


def _check_vocabulary(name: str, tokenizer: Any, model: Any) -> None:
    highest = max(tokenizer.get_vocab().values())
    with errors_as_sentence(f"the model {name!r} has no table with an embedding of each token"):
        rows = model.get_input_embeddings().num_embeddings
    if highest >= rows:
        raise InputError(
            f"the tokenizer of the model {name!r} is another model's: its vocabulary goes up to "
            f"token {highest}, but the model has embeddings for {rows} tokens."
        )


def read_packed(path: Path) -> dict[str, Any]:
    """The weights of a file in 8 or 4 bits as float32 torch tensors, by name.

    Raises `InputError` where the file is no such file.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    broken = (SafetensorError, OSError, KeyError, ValueError, TypeError)
    with readable(path.name, "file of packed weights", *broken):
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            bits, shapes = int(about["bits"]), json.loads(about["shapes"])
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        weights = {}
        for name, tensor in stored.items():
            if name.endswith(SCALE):
                continue
            numbers = tensor.astype(np.float32)
            if name in shapes:
                if bits == 4:
                    steps = np.stack([tensor & 15, tensor >> 4], axis=-1).astype(np.float32) - 8
                    numbers = steps.reshape(len(tensor), -1)
                numbers = numbers * stored[name + SCALE].astype(np.float32)[:, None]
                size = math.prod(shapes[name])
                numbers = numbers.ravel()[:size].reshape(shapes[name])
            weights[name] = torch.from_numpy(np.ascontiguousarray(numbers))
    return weights
