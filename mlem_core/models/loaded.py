"""A model that is ready to run, and transformers kept off the user's screen around it."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from logging import CRITICAL
from typing import Any

from mlem_core.storage.watched import Watched, changed

_NO_FILES = Watched("")


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
