"""Tokens of sentences, and the row that stands for a stimulus, from the states of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parameters import Registry
from mlem_core.base.typing import IntArray
from mlem_core.extending import entry_modules
from mlem_core.representations.forward import LoadedModel, quietly
from mlem_core.stimuli.stimulus_set import StimulusSet

if TYPE_CHECKING:
    import torch

# Which tokens are added before and after a sentence, and how the manifest says it.
SPECIAL_TOKENS = {
    "model": "as the tokenizer adds them",
    "none": "none",
    "start": "as the tokenizer adds them, with a start token where it adds none",
}


class Mean(NamedTuple):
    """The tokens whose mean stands for a stimulus.

    label : as the manifest says it; what is kept is found by it
    tokens : gives the first and the last of them, (n,) each, of n stimuli whose own tokens go from
        the first to the last that it is given
    """

    label: str
    tokens: Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]


@dataclass(frozen=True)
class Pooling:
    """The tokens that stand for a stimulus: `of` has them by level ("word", "sentence")."""

    name: str
    of: Mapping[str, Mean]

    @property
    def label(self) -> str:
        """Label on screens, of every level that has this pooling."""
        return " or ".join(mean.label for mean in self.of.values())


_ALL = partial(Mean, tokens=lambda first, last: (first, last))
_LAST = partial(Mean, tokens=lambda first, last: (last, last))
POOLINGS = Registry[Pooling]("pooling", entry_modules)
for _pooling in (
    Pooling(
        "standard",
        {
            "word": _LAST("last sub-token of the word"),
            "sentence": _ALL("mean over the sentence's tokens"),
        },
    ),
    Pooling("mean", {"word": _ALL("mean over the word's sub-tokens")}),
    Pooling("last", {"sentence": _LAST("last token of the sentence")}),
):
    POOLINGS.register(_pooling)
Span = tuple[int, int]  # first and last token, or begin and end in the text
_CHUNK = 1000  # sentences tokenised at a time


@dataclass(frozen=True)
class TokenizedStimuli:
    """Each different sentence once, as the model reads it.

    Attributes
    ----------
    tokens : per sentence its token ids, start and end tokens included.
    stimuli : per sentence the rows of its stimuli.
    spans : (n_stimuli, 2) first and last token of each word, or of each sentence without the start
        and end tokens.
    level : whether the stimuli are words or sentences.
    special : the tokens added before and after a sentence.
    n_unknown : how many stimuli the tokenizer's unknown token stands for: words that end in it,
        sentences that have no other.
    """

    tokens: list[np.ndarray]
    stimuli: list[np.ndarray]
    spans: np.ndarray
    level: str
    special: tuple[list[str], list[str]]
    n_unknown: int

    @property
    def lengths(self) -> np.ndarray:
        """(n_sentences,) how many tokens each has."""
        return np.array([len(ids) for ids in self.tokens])


def tokenize(
    stimuli: StimulusSet, loaded: LoadedModel, special_tokens: str = "model"
) -> TokenizedStimuli:
    """Tokenise every different sentence once, and find each word's last sub-token.

    Words are separated by whitespace, as in the CSV.

    Parameters
    ----------
    special_tokens : start and end tokens: "model" adds what the tokenizer was made to add, "none"
        nothing, "start" a start token too where the tokenizer adds nothing before a sentence.

    Raises `InputError` naming the row where a sentence has no tokens or more than the model
    reads, and where no token ends with the word; for "start" where there is no such token; and
    where the unknown token stands for every stimulus.
    """
    before = _start_token(loaded, special_tokens)
    rows_of: dict[str, list[int]] = {}
    for row, sentence in enumerate(stimuli.sentences):
        rows_of.setdefault(sentence, []).append(row)
    sentences = list(rows_of)
    rows = [np.array(indices) for indices in rows_of.values()]
    words: Any = stimuli.word_index  # None of sentences
    stimulus_spans = np.zeros((len(stimuli), 2), dtype=np.int64)
    unknown = loaded.tokenizer.unk_token_id
    tokens: list[np.ndarray] = []
    special: tuple[list[str], list[str]] = ([], [])
    n_unknown = 0
    for begin in range(0, len(sentences), _CHUNK):
        batch = sentences[begin : begin + _CHUNK]
        encoded = _encode(loaded.tokenizer, batch, special_tokens != "none", before)
        for sentence, (ids, first, last, spans) in zip(batch, encoded, strict=True):
            its_rows = rows[len(tokens)]
            if first > last:
                raise InputError(
                    f"row {its_rows[0] + 1}: the tokenizer of {loaded.name} finds nothing in the "
                    f"sentence {sentence[:60]!r}."
                )
            if loaded.max_tokens is not None and len(ids) > loaded.max_tokens:
                raise InputError(
                    f"row {its_rows[0] + 1}: the sentence has {len(ids)} tokens for {loaded.name}, "
                    f"which reads at most {loaded.max_tokens}."
                )
            if not tokens:
                names = loaded.tokenizer.convert_ids_to_tokens
                special = (names(ids[:first].tolist()), names(ids[last + 1 :].tolist()))
            of_words = None
            if words is not None:
                of_words = _tokens_of_words(loaded.tokenizer, sentence, ids, first, spans)
            for row in its_rows:
                span = (first, last) if of_words is None else of_words[int(words[row])]
                if span is None:
                    word = sentence.split()[int(words[row])]
                    raise InputError(
                        f"row {row + 1}: the tokenizer of {loaded.name} has no token that ends "
                        f"with the word {word!r} (word_index {words[row]})."
                    )
                stimulus_spans[row] = span
                if unknown is not None:
                    looked_at = first if of_words is None else span[1]
                    n_unknown += bool((ids[looked_at : span[1] + 1] == unknown).all())
            tokens.append(ids)
    if n_unknown == len(stimuli):
        raise InputError(
            f"the tokenizer of {loaded.name} knows none of the {n_unknown} {stimuli.level}s: the "
            "one token for what is unknown stands for all; choose a model of their language."
        )
    return TokenizedStimuli(tokens, rows, stimulus_spans, stimuli.level, special, n_unknown)


def _start_token(loaded: LoadedModel, special_tokens: str) -> list[int]:
    """The token that "start" puts before those of the tokenizer: its start token, or nothing."""
    tokenizer = loaded.tokenizer
    if special_tokens != "start" or _encode(tokenizer, ["a"], True, [])[0][1] > 0:
        return []
    for token in (tokenizer.bos_token_id, tokenizer.cls_token_id):
        if token is not None:
            return [int(token)]
    raise InputError(
        f"the tokenizer of {loaded.name} names no start token; the choices of special tokens for "
        "it are model and none."
    )


def _encode(
    tokenizer: Any, sentences: list[str], special: bool, before: list[int]
) -> list[tuple[np.ndarray, int, int, list[Span] | None]]:
    """Per sentence (ids, first and last token of the sentence itself, character spans).

    `special`: with the tokens that the tokenizer adds; `before`: what comes before all of it.
    """
    with quietly():  # about long sentences, which we look at ourselves
        encoded = tokenizer(
            sentences,
            add_special_tokens=special,
            return_special_tokens_mask=special,
            return_offsets_mapping=tokenizer.is_fast,
            return_attention_mask=False,
        )
    result = []
    for row, ids in enumerate(encoded["input_ids"]):
        mask = encoded["special_tokens_mask"][row] if special else [0] * len(ids)
        content = [i for i, added in enumerate(mask, len(before)) if not added]
        first, last = (content[0], content[-1]) if content else (0, -1)
        spans = None
        if tokenizer.is_fast:
            spans = [(0, 0)] * len(before) + list(encoded["offset_mapping"][row])
        result.append((np.asarray(before + list(ids), dtype=np.int64), first, last, spans))
    return result


def _tokens_of_words(
    tokenizer: Any, sentence: str, ids: np.ndarray, first: int, spans: list[Span] | None
) -> list[Span | None]:
    """First and last token that has some of each word of a sentence, or None.

    None also where the last token goes on into the next word: it stands for both.
    """
    words = [match.span() for match in re.finditer(r"\S+", sentence)]
    if spans is None:
        return _tokens_by_prefix(tokenizer, sentence, [end for _, end in words], ids, first)
    result: list[Span | None] = []
    for begin, end in words:
        inside = [i for i, (a, b) in enumerate(spans) if a < end and b > begin and a < b]
        is_whole = inside and not sentence[end : spans[inside[-1]][1]].strip()
        result.append((inside[0], inside[-1]) if is_whole else None)
    return result


def _tokens_by_prefix(
    tokenizer: Any, sentence: str, ends: list[int], ids: np.ndarray, first: int
) -> list[Span | None]:
    """Token spans of words, for tokenizers that do not say where in the text a token is.

    The tokens of the sentence up to a word's end must be how the sentence's tokens begin.
    """
    result: list[Span | None] = []
    before = 0
    for end in ends:
        start = tokenizer(sentence[:end], add_special_tokens=False)["input_ids"]
        same = list(ids[first : first + len(start)]) == list(start)
        is_whole = same and len(start) > before
        result.append((first + before, first + len(start) - 1) if is_whole else None)
        before = len(start)
    return result


def pooled(level: str, pooling: str) -> Mean:
    """The tokens that stand for a stimulus; `InputError` where its level has no such choice."""
    if level == "stimulus":
        raise InputError(
            "models of language read sentences, and these stimuli are no text (they have a column "
            "'stimulus' and no 'sentence'); choose files of representations and no models."
        )
    choices = {name: pooling.of[level] for name, pooling in POOLINGS.items() if level in pooling.of}
    check_choice(f"pooling of a {level}", pooling, choices)
    return choices[pooling]


class Spans(NamedTuple):
    """The tokens whose mean each stimulus is: all arrays are (n_rows,).

    sentence : its sentence in the batch
    first, last : the first and the last of its tokens in there
    """

    sentence: IntArray
    first: IntArray
    last: IntArray


class PooledRows:
    """The rows of one batch, layer by layer as `take` is given them.

    Parameters
    ----------
    spans : of the stimuli of the batch
    n_tokens : of each of its sentences
    """

    def __init__(self, spans: Spans, n_tokens: int, device: str) -> None:
        import torch

        self._rows: list[torch.Tensor] = []
        self._sentence = torch.from_numpy(spans.sentence).to(device)
        self._last = self._shares = None
        if (spans.first == spans.last).all():
            self._last = torch.from_numpy(spans.last).to(device)
        else:
            place = np.arange(n_tokens)
            inside = (place >= spans.first[:, None]) & (place <= spans.last[:, None])
            share = (inside / inside.sum(axis=1, keepdims=True)).astype(np.float32)
            self._shares = torch.from_numpy(share).to(device)[:, None, :]

    def take(self, state: torch.Tensor) -> None:
        """Keep the stimuli's rows of the next layer, whose states are (n_inputs, n_tokens, n)."""
        if self._shares is None:
            self._rows.append(state[self._sentence, self._last].float())
        else:
            self._rows.append((self._shares @ state.float()[self._sentence])[:, 0])

    def arrays(self) -> list[NDArray[np.float32]]:
        """(n_rows, n_units) of each layer."""
        return [rows.cpu().numpy() for rows in self._rows]
