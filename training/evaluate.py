"""Are they real models? Held-out text against n-gram models, and minimal pairs.

Everything is measured on the weights as they are shipped, in float32 on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from training.networks import CAUSAL, OBJECTIVES, causal_losses, masked_losses
from training.ngram import JelinekMercer, KneserNey, Vocabulary
from training.pairs import PHENOMENA, Pair
from training.vocabulary import END, MASK, PAD, SPECIAL, START

ROWS = 32  # of a forward pass
Document = Sequence[int]


def stream(documents: Sequence[Document]) -> list[int]:
    """Documents one after the other, each between the start and the end token."""
    return [token for document in documents for token in (START, *document, END)]


def baselines(
    train: list[str], dev: list[str], test: list[str], tokenizer: Any
) -> dict[str, float]:
    """Bits per word of trigram models on the test documents, each by the units it counts.

    A word is a word or punctuation mark of the tokenizer's first step, or the end of a document.
    Over tokens, each document is spelled as the networks read it; over words, those that come
    only once or never in the training text cost their letters (`Vocabulary`).
    """
    tokens = [[e.ids for e in tokenizer.encode_batch(part)] for part in (train, dev, test)]
    words = [[split(tokenizer, document) for document in part] for part in (train, dev, test)]
    n_words = sum(len(document) + 1 for document in words[2])
    vocabulary = Vocabulary(words[0])
    spelling = sum(vocabulary.spelling_bits(document) for document in words[2])
    units = [[vocabulary.units(document) for document in part] for part in words]
    # Any token but the special ones, or the end.
    sizes = tokenizer.get_vocab_size() - len(SPECIAL) + 1, len(vocabulary.known) + 2
    result = {}
    for name, (fitted, tuned, held), size, more in (
        ("tokens", tokens, sizes[0], 0.0),
        ("words", units, sizes[1], spelling),
    ):
        for kind, model in (
            ("Kneser-Ney", KneserNey(fitted, size)),
            ("Jelinek-Mercer", JelinekMercer(fitted, tuned, size)),
        ):
            bits = sum(float(model.bits(document).sum()) for document in held)
            result[f"{kind} trigram over {name}"] = (bits + more) / n_words
    return result


def split(tokenizer: Any, document: str) -> list[str]:
    """The words and punctuation marks of a document, lower-cased."""
    normal = tokenizer.normalizer.normalize_str(document)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]


@torch.no_grad()
def causal_bits(name: str, model: Any, ids: Sequence[int], longest: int) -> float:
    """Bits of all tokens of a stream but the start tokens, which are given.

    The stream is read in windows of `longest` tokens that overlap by half: a token is predicted
    from at least half a window of text before it, where there is as much.
    """
    half = longest // 2
    total = 0.0
    starts = list(range(0, max(1, len(ids) - half), half))
    for first in range(0, len(starts), ROWS):
        windows = [list(ids[i : i + longest]) for i in starts[first : first + ROWS]]
        batch = torch.tensor([window + [END] * (longest - len(window)) for window in windows])
        bits = causal_losses(name, model, batch) / math.log(2)
        for row, window in enumerate(windows):
            begin = 1 if first + row == 0 else half
            wanted = torch.tensor(window[begin:]) != START
            total += float(bits[row, begin - 1 : len(window) - 1][wanted].sum())
    return total


def unigrams(documents: Sequence[Document], size: int) -> np.ndarray:
    """Bits of each token (size,) by its share of the tokens of documents, all counted once more."""
    counts = np.bincount([t for d in documents for t in d], minlength=size) + 1.0
    counts[[PAD, START, END, MASK]] = 0
    with np.errstate(divide="ignore"):
        bits: np.ndarray = -np.log2(counts / counts.sum())
    return bits


@torch.no_grad()
def masked_bits(
    name: str, model: Any, ids: Sequence[int], longest: int, unigram: np.ndarray, n: int
) -> tuple[float, float]:
    """(the model's, the unigram's) bits per token over `n` tokens, each masked by itself.

    The tokens are drawn from a stream; each is read in the window of `longest` around it.
    """
    stream = torch.tensor(ids)
    places = [i for i, token in enumerate(ids) if token not in (START, END)]
    order = np.random.default_rng(0).permutation(len(places))[:n]
    total = baseline = 0.0
    for part in np.array_split(order, max(1, math.ceil(len(order) / ROWS))):
        chosen = [places[i] for i in part]
        begins = [min(max(0, i - longest // 2), max(0, len(ids) - longest)) for i in chosen]
        batch = torch.stack([stream[begin : begin + longest] for begin in begins])
        at = (torch.arange(len(part)), torch.tensor(chosen) - torch.tensor(begins))
        shown = batch.clone()
        shown[at] = MASK
        total += float(masked_losses(name, model, batch, shown, at).sum()) / math.log(2)
        baseline += float(unigram[batch[at]].sum())
    return total / len(order), baseline / len(order)


@torch.no_grad()
def sentence_bits(name: str, model: Any, tokenizer: Any, sentences: Sequence[str]) -> np.ndarray:
    """What each sentence costs a model, in bits, (n_sentences,).

    Causal: all tokens and the end. Masked: the pseudo-log-likelihood, each token masked together
    with the later tokens of its word (Kauf & Ivanova 2023, "within-word left-to-right"), so that a
    word's other half does not give it away.
    """
    causal = OBJECTIVES[name] == CAUSAL
    encodings = tokenizer.encode_batch(list(sentences), add_special_tokens=False)
    of_length: dict[int, list[int]] = {}
    for number, encoding in enumerate(encodings):
        of_length.setdefault(len(encoding.ids), []).append(number)
    result = np.zeros(len(sentences))
    for n, numbers in of_length.items():
        for first in range(0, len(numbers), 4 * ROWS):
            part = numbers[first : first + 4 * ROWS]
            ids = torch.tensor([[START, *encodings[i].ids, END] for i in part])
            if causal:
                nats = causal_losses(name, model, ids).sum(1)
            else:
                shown = ids.repeat_interleave(n, 0).view(len(part), n, n + 2)
                for row, number in enumerate(part):
                    words = np.array(encodings[number].word_ids)
                    later = np.triu(words[:, None] == words[None, :])
                    shown[row, :, 1:-1][torch.from_numpy(later)] = MASK
                at = (torch.arange(len(part) * n), torch.arange(1, n + 1).repeat(len(part)))
                copies = ids.repeat_interleave(n, 0)
                nats = masked_losses(name, model, copies, shown.flatten(0, 1), at)
                nats = nats.view(len(part), n).sum(1)
            result[part] = nats.numpy() / math.log(2)
    return result


def prefer(
    name: str, model: Any, tokenizer: Any, pairs: Sequence[Pair]
) -> dict[str, dict[str, float]]:
    """Per phenomenon the share of pairs in which the right sentence costs less, and each case's.

    The keys are "share" and "n", over all pairs, and the cases; a draw counts as one half.
    """
    right = sentence_bits(name, model, tokenizer, [pair.right for pair in pairs])
    wrong = sentence_bits(name, model, tokenizer, [pair.wrong for pair in pairs])
    won = (right < wrong) + 0.5 * (right == wrong)
    result: dict[str, dict[str, float]] = {}
    for phenomenon in PHENOMENA:
        own = np.array([pair.phenomenon == phenomenon for pair in pairs])
        if not own.any():
            continue
        result[phenomenon] = {"share": float(won[own].mean()), "n": float(own.sum())}
        for case in sorted({pair.case for pair in pairs if pair.phenomenon == phenomenon}):
            these = own & np.array([pair.case == case for pair in pairs])
            result[phenomenon][case] = float(won[these].mean())
    return result
