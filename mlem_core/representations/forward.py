"""A model that is ready to run, and its forward pass: the hidden states of every layer.

They have one meaning for every architecture.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from logging import CRITICAL
from typing import TYPE_CHECKING, Any

from mlem_core.base.errors import InputError, errors_as_sentence
from mlem_core.base.text import listed
from mlem_core.storage.digests import Watched, changed

if TYPE_CHECKING:
    import torch

_NO_FILES = Watched("")
# Packages with fast kernels, and how a function ends that the code of a model has in their place.
_KERNELS = {"mamba-ssm": "selective_state_update", "causal-conv1d": "causal_conv1d_fn"}
PROBE = 8  # tokens that a model is tried on
# Largest change of the states before a token that is none, beside the change of its own states.
_UNSEEN = 1e-4


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, in evaluation mode, its numbers of the type `dtype`.

    `identity` is what the weights and the tokenizer are (a digest or a hub commit), `n_layers`
    the number of blocks (there is one more layer than blocks: layer 0, the embeddings),
    `max_tokens` the longest input or None where there is no limit, `note` what must be said
    wherever the model is named, `causal` whether a token sees only what comes before it,
    `streams` whether its layers can be had one after the other during a pass, `files` what it was
    read from (weights may be mapped).
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
    streams: bool = False
    files: Watched = _NO_FILES

    def check_is(self, identity: str) -> None:
        """Raise `InputError` unless it was read from the files of an identity, as they still are.

        What is made of it under that identity is kept only if they are so at its end, too.
        """
        if self.identity != identity:
            raise changed(f"the model {self.name!r}")
        self.files.is_read()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
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


def hidden_states(model: Any, n_layers: int, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The hidden states of a batch of equally long inputs, from one forward pass.

    Parameters
    ----------
    model : a transformers model without a head.
    n_layers : the number of its blocks.
    input_ids : (n_inputs, n_tokens) integers on the model's device, no padding.

    Returns n_layers + 1 tensors of shape (n_inputs, n_tokens, n_units): layer 0 is what enters the
    first block (the embeddings, with positions where the model adds them), layer k what leaves
    block k; the last one has passed the model's final norm where it has one.
    """
    return _full_pass(model, n_layers, input_ids)[0]


class _Enough(Exception):
    """No layer is wanted any more."""


def each_layer(
    loaded: LoadedModel,
    input_ids: torch.Tensor,
    take: Callable[[torch.Tensor], None],
    kept: Collection[int] | None = None,
) -> None:
    """One forward pass that gives `take` the `hidden_states` of one layer after the other.

    Where the model `streams`, each is given as soon as it is computed, and none is kept; then the
    pass ends with the last of the layers that are `kept` (None: of all).
    """
    wanted = range(loaded.n_layers + 1) if kept is None else kept
    numbers = iter(range(loaded.n_layers + 1))

    def give(state: torch.Tensor) -> None:
        number = next(numbers)
        if number in wanted:
            take(state)
        if number == max(wanted):
            raise _Enough

    with contextlib.suppress(_Enough), _as_it_is():
        if loaded.streams:
            with _entering(_blocks(loaded.model, loaded.n_layers), give):
                give(loaded.model(input_ids=input_ids, return_dict=True).last_hidden_state)
        else:
            for state in hidden_states(loaded.model, loaded.n_layers, input_ids):
                give(state)


def changing(
    model: Any, n_layers: int, layer: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> AbstractContextManager[None]:
    """A block of code in which a layer's states enter the next block as `change` gives them.

    Parameters
    ----------
    model : with its head or without
    layer : from 0 to n_layers - 1
    """
    # Before the hooks that take what enters a block.
    return _entering([_blocks(model, n_layers)[layer]], change)


def probe_tokens(tokenizer: Any, config: Any) -> list[int]:
    """`PROBE` + 1 token numbers, spread over the vocabulary, on which a model is tried.

    They are parts of text: special and added tokens are left out, and those that the model's
    configuration names (a model may mask its padding token by itself).
    """
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    for key, value in config.to_dict().items():
        if key.endswith(("_token_id", "_index")):
            special |= set(value) if isinstance(value, list) else {value}
    vocabulary = set(tokenizer.get_vocab().values())
    tokens = sorted(vocabulary - special) or sorted(vocabulary)
    return [tokens[at * len(tokens) // (PROBE + 1)] for at in range(PROBE + 1)]


def count_blocks(name: str, model: Any, tokens: Sequence[int]) -> tuple[int, bool]:
    """The number of blocks, and whether the model `streams`, by a run on some tokens.

    A model streams where its hidden states are what enters each block, and what it gives at last.

    Raises `InputError` where the model cannot be run or gives no hidden state of each block.
    """
    import torch

    with errors_as_sentence(f"the model {name!r} cannot be run on text alone"):
        n_layers = int(model.config.num_hidden_layers)
        ids = torch.tensor([tokens], device=model.device)
        states, passed = _full_pass(model, n_layers, ids)
        shapes = sorted({tuple(state.shape[:-1]) for state in states})
    if len(states) != n_layers + 1 or shapes != [(1, len(tokens))]:
        raise InputError(
            f"the model {name!r} gives {len(states)} hidden states of the shapes "
            f"{listed([str(shape) for shape in shapes])} for {n_layers} layers; expected one for "
            f"each layer and one for the embeddings, of the shape (1, {len(tokens)}): one input, "
            f"{len(tokens)} tokens."
        )
    streams = len(passed) == len(states) and all(map(torch.equal, passed, states))
    return n_layers, streams


def is_causal(model: Any, n_layers: int, tokens: Sequence[int]) -> bool:
    """Whether a token's states depend on what comes before it alone.

    Tokens at several positions are replaced, one at a time. In a causal model the states before
    them change by rounding alone: mixtures of experts compute the tokens of a batch together. How
    much that is shows in a second sentence, which stays as it is. Most positions decide.

    Parameters
    ----------
    tokens : (n_tokens + 1,) different tokens of text; the last one replaces others
    """
    import torch

    ids = torch.tensor([tokens[:-1], tokens[-2::-1]], device=model.device)
    before = hidden_states(model, n_layers, ids)
    places = range(1, ids.shape[1], 2)
    n_causal = 0
    for place in places:
        replaced = ids.clone()
        replaced[0, place] = tokens[-1]
        after = hidden_states(model, n_layers, replaced)
        # (n_layers + 1, 2, n_tokens)
        change = torch.stack(
            [(a - b).float().norm(dim=-1) for a, b in zip(after, before, strict=True)]
        )
        left, replaced_token = change[:, 0, :place].amax(dim=1), change[:, 0, place]
        rounding = change[:, 1].amax(dim=1)
        n_causal += bool((left <= _UNSEEN * replaced_token + 10 * rounding).all())
    return n_causal > len(places) / 2


def fast_kernels(model: Any) -> dict[str, str]:
    """The packages with fast kernels for Mamba that transformers took for a model, with versions.

    It takes those that it can import, whatever the device, as it loads the code of the model.
    """
    code, versions = vars(sys.modules[type(model).__module__]), {}
    for package, function in _KERNELS.items():
        used = any(name.endswith(function) for name in code)
        if used and sys.modules.get(package.replace("-", "_")) is not None:
            versions[package] = importlib.metadata.version(package)
    return versions


def longest_input(model: Any, tokenizer: Any) -> int | None:
    """The tokens that a model reads at most, or None where there is no limit."""
    import torch

    limits = []
    window = getattr(model.config, "max_position_embeddings", None)
    if window and window > 0:  # -1 is no limit (XLNet)
        limits.append(int(window))
    for path, module in model.named_modules():
        # RoBERTa and its kin count positions from behind the padding's own.
        if path.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            taken = -1 if module.padding_idx is None else module.padding_idx
            limits.append(module.num_embeddings - taken - 1)
    if tokenizer.model_max_length < 10**9:
        limits.append(int(tokenizer.model_max_length))
    return min(limits) if limits else None


def text_model(model: Any) -> Any:
    """The language model in a multimodal model, any other model itself."""
    from transformers import MODEL_MAPPING, PreTrainedModel

    config = model.config.get_text_config()
    without_head: Any = MODEL_MAPPING.get(type(config), PreTrainedModel)
    for module in model.modules():
        if isinstance(module, without_head) and module.config is config:
            return module
    return model


def _blocks(model: Any, n_layers: int) -> Any:
    """The list of a model's blocks, or None: the outermost module list of that length."""
    import torch

    lists = [
        (path.count("."), module)
        for path, module in text_model(model).named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == n_layers
    ]
    return min(lists, key=lambda item: item[0])[1] if lists else None


def _full_pass(
    model: Any, n_layers: int, input_ids: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
    """All `hidden_states`, and what entered each block and left the model."""
    import torch

    passed: list[torch.Tensor] = []
    with _entering(_blocks(model, n_layers), passed.append), _as_it_is():
        output = model(input_ids=input_ids, output_hidden_states=True, return_dict=True)
    states = tuple(output.hidden_states)
    # What enters a block may be padded (Longformer) or have other axes (XLNet).
    shifted = bool(passed) and not torch.equal(passed[0], states[0])
    if len(passed) > 1:
        shifted = shifted and torch.equal(passed[1], states[0])
    if shifted:
        # The recurrent models (Mamba, Mamba-2, RWKV) leave the embeddings out and give the
        # last block twice, before and after the norm.
        states = (passed[0], *states[: n_layers - 1], states[-1])
    if len(states) == n_layers + 1:
        # Some (CLIP) list the last block without the final norm.
        states = (*states[:-1], output.last_hidden_state)
    return states, [*passed, output.last_hidden_state]


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    """No gradients, and no shorter numbers than those of the weights."""
    import torch

    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        yield


@contextlib.contextmanager
def _entering(blocks: Any, take: Callable[[torch.Tensor], torch.Tensor | None]) -> Iterator[None]:
    """Give `take` what enters each block; where it gives something back, that enters."""

    def enter(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = take(args[0] if args else kwargs["hidden_states"])
        if state is None:
            return None
        return ((state, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": state})

    hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in blocks or ()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
