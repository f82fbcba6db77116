"""Surprisal of words in a causal model."""

from __future__ import annotations

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.loading import load_with_head, open_model
from mlem_core.representations.predictions import tokenized, word_predictions
from mlem_core.stimuli.stimulus_set import StimulusSet

# Space (byte-level, SentencePiece), new line, tab and return as tokens begin with them.
_SPACES = ("Ġ", "▁", "Ċ", "ĉ", "č", "<0x20>", "<0x0A>", "<0x09>", "<0x0D>")


def surprisal(
    stimuli: StimulusSet, name: str, device: str = "auto", *, whole_words: bool = False
) -> FloatArray:
    """−log2 of the probability of each word after the words before it: (n_stimuli,), in bits.

    The sum over the word's sub-tokens, what is glued to it included: of a text that goes on with
    them, whether or not the word ends there. A start token comes before the sentence where the
    model has one; without it the first word has nothing before it and is missing (NaN).

    Parameters
    ----------
    stimuli : words
    name : of a model, as for `mlem_core.representations.loading.open_model`
    whole_words : of the word as a whole: times the probability that the next token begins another
        word, divided by the one that the word's first token begins a word, where it begins with a
        space (Pimentel and Meister 2024, Oh and Schuler 2024)

    Raises InputError: the stimuli are sentences, the model is not causal or cannot be used, a row
    cannot be read; for `whole_words`, no token begins with a space.
    """
    if stimuli.level != "word":
        raise InputError(
            f"surprisal is a feature of words in sentences, and the stimuli of {stimuli.name} are "
            "none."
        )
    loaded = open_model(name, device)
    if not loaded.causal:
        raise InputError(
            f"the model {name!r} sees what comes after a word, so that it gives no surprisal; "
            "choose a causal one, such as smollm2 or gpt2."
        )
    begins = begins_word(loaded) if whole_words else None
    tokens, model = tokenized(stimuli, loaded), load_with_head(loaded)
    return word_predictions(tokens, loaded, model, begins=begins).surprisal


def begins_word(loaded: LoadedModel) -> IntArray:
    """Numbers of the tokens that begin another word, or end the text: (n,).

    They begin with white space, as byte-level tokenizers and SentencePiece write it.

    Raises InputError: there are none.
    """
    vocabulary = loaded.tokenizer.get_vocab()
    spaces = [n for text, n in vocabulary.items() if text.startswith(_SPACES)]
    if not any(len(text) > 1 for text in vocabulary if text.startswith(_SPACES[:2])):
        raise InputError(
            f"no token of {loaded.name} begins with a space, so that it does not say where a word "
            "ends; choose surprisal in the place of word_surprisal."
        )
    return np.unique([*spaces, *loaded.tokenizer.all_special_ids])
