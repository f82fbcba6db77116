"""The one tokenizer of the trio: lower-case WordPiece, each model with its own start and end.

The vocabulary is the same file for all. mini-bert reads `<s> sentence </s>`, mini-gpt2 and
mini-mamba read `<s> sentence`; `</s>` is what the latter two learn to predict after a document.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
PAD, UNK, START, END, MASK = range(len(SPECIAL))
PIECES, KNOWN = 0.5, 5


def fit(documents: Iterable[str], size: int, whole: Iterable[str] = ()) -> Any:
    """A `tokenizers.Tokenizer` of `size` tokens, fitted on documents, without start or end.

    A share `PIECES` of the tokens is WordPiece's own. The others are words as they are: those of
    `whole` that the documents have `KNOWN` times, so that no form of a verb that the probing
    grammar uses is one token where another is two, and then the most frequent ones.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(len(SPECIAL), int(PIECES * size)),
        special_tokens=list(SPECIAL),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    documents = list(documents)
    tokenizer.train_from_iterator(documents, trainer)
    counts: Counter[str] = Counter()
    for document in documents:
        normal = tokenizer.normalizer.normalize_str(document)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    tokens = tokenizer.get_vocab()
    wanted = [word.lower() for word in whole if counts[word.lower()] >= KNOWN]
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    for word in dict.fromkeys([*wanted, *by_count]):
        if len(tokens) < size:
            tokens.setdefault(word, len(tokens))
    tokenizer.model = models.WordPiece(vocab=tokens, unk_token="<unk>")
    return tokenizer


def as_before(tokenizer: Any, earlier: Path) -> Any:
    """The earlier tokenizer, without start and end, where it has the same tokens; else this one.

    Two fits give tokens of one rank different numbers, and models have one tokenizer.
    """
    from tokenizers import Tokenizer

    if not earlier.is_file():
        return tokenizer
    told = json.loads(earlier.read_text(encoding="utf-8"))
    same = set(told["model"]["vocab"]) == set(tokenizer.get_vocab())
    return Tokenizer.from_str(json.dumps(told | {"post_processor": None})) if same else tokenizer


def wrap(tokenizer: Any, bidirectional: bool, longest: int) -> Any:
    """The tokenizer as transformers saves it, with the start and end that a model has."""
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer.from_str(tokenizer.to_str())
    own.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if bidirectional else "<s> $A",
        pair="<s> $A </s> $B </s>" if bidirectional else "<s> $A $B",
        special_tokens=[("<s>", START), ("</s>", END)],
    )
    names = {"pad_token": PAD, "unk_token": UNK, "bos_token": START, "eos_token": END}
    if bidirectional:
        names |= {"mask_token": MASK, "cls_token": START, "sep_token": END}
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        model_max_length=longest,
        **{name: SPECIAL[number] for name, number in names.items()},
    )
