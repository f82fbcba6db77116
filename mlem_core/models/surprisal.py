"""The surprisal of words in a causal model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.extraction import batches
from mlem_core.models.forward import LoadedModel, quietly
from mlem_core.models.loading import load_with_head, open_model
from mlem_core.models.tokens import TokenizedStimuli, tokenize

# A batch's logits are tokens times vocabulary: 100 MB at 50,000.
MAX_TOKENS = 512


def surprisal(stimuli: StimulusSet, name: str, device: str = "auto") -> FloatArray:
    """−log2 of the probability of each word after the words before it: (n_stimuli,), in bits.

    The sum over the word's sub-tokens, what is glued to it included. A start token comes before the
    sentence where the model has one; without it the first word has nothing before it and is
    missing (NaN).

    Parameters
    ----------
    stimuli : words
    name : of a model, as for `mlem_core.models.loading.open_model`

    Raises
    ------
    InputError
        The stimuli are sentences, the model is not causal or cannot be used, a row cannot be read.
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
    return word_surprisal(_tokenized(stimuli, loaded), loaded, load_with_head(loaded))


def word_surprisal(tokenized: TokenizedStimuli, loaded: LoadedModel, model: Any) -> FloatArray:
    """`surprisal` of stimuli that are tokenised, from a model with its head."""
    import torch

    values = np.full(len(tokenized.spans), np.nan)
    for batch in batches(tokenized.lengths, MAX_TOKENS):
        ids = torch.from_numpy(np.stack([tokenized.tokens[i] for i in batch])).to(loaded.device)
        with torch.inference_mode(), quietly():
            logits = model(input_ids=ids).logits[:, :-1].float()
            chosen = logits.log_softmax(dim=-1).gather(2, ids[:, 1:, None])[..., 0]
        bits = -chosen.double().cpu().numpy() / math.log(2)
        for of_sentence, i in zip(bits, batch, strict=True):
            for row in tokenized.stimuli[i]:
                first, last = tokenized.spans[row]
                if first > 0:
                    values[row] = of_sentence[first - 1 : last].sum()
    return values


def _tokenized(stimuli: StimulusSet, loaded: LoadedModel) -> TokenizedStimuli:
    try:
        return tokenize(stimuli, loaded, "start")
    except InputError:
        # It has no start token; where that is not the reason, the same is said again.
        return tokenize(stimuli, loaded)
