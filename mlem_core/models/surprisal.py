"""The surprisal of words in a causal model, or of masked words in another."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.extraction import During, batches
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


def word_surprisal(
    tokenized: TokenizedStimuli,
    loaded: LoadedModel,
    model: Any,
    during: During = lambda batch: nullcontext(),
) -> FloatArray:
    """`surprisal` of stimuli that are tokenised, from a model with its head.

    Parameters
    ----------
    during : gives what the sentences of a batch, by their numbers, are run in
    """
    import torch

    values = np.full(len(tokenized.spans), np.nan)
    for batch in batches(tokenized.lengths, MAX_TOKENS):
        ids = torch.from_numpy(np.stack([tokenized.tokens[i] for i in batch])).to(loaded.device)
        with torch.inference_mode(), quietly(), during(batch):
            logits = model(input_ids=ids).logits[:, :-1].float()
            chosen = logits.log_softmax(dim=-1).gather(2, ids[:, 1:, None])[..., 0]
        bits = -chosen.double().cpu().numpy() / math.log(2)
        for of_sentence, i in zip(bits, batch, strict=True):
            for row in tokenized.stimuli[i]:
                first, last = tokenized.spans[row]
                # A sentence without a start token is predicted from its second token on.
                first = max(first, int(tokenized.level == "sentence"))
                if 0 < first <= last:
                    values[row] = of_sentence[first - 1 : last].sum()
    return values


def masked_surprisal(
    tokens: TokenizedStimuli,
    loaded: LoadedModel,
    model: Any,
    during: During = lambda batch: nullcontext(),
) -> FloatArray:
    """−log2 of the probability of each stimulus where its tokens are masked: (n_stimuli,), in bits.

    Its tokens are predicted independently, from the others of the sentence.

    Parameters
    ----------
    model : with the head that predicts masked tokens
    during : as in `word_surprisal`

    Raises
    ------
    InputError
        The tokenizer has no token for what is masked.
    """
    import torch

    mask = loaded.tokenizer.mask_token_id
    if mask is None:
        raise InputError(f"the tokenizer of {loaded.name} has no token for what is masked.")
    sentence = np.zeros(len(tokens.spans), dtype=np.int64)
    for number, rows in enumerate(tokens.stimuli):
        sentence[rows] = number
    values = np.full(len(tokens.spans), np.nan)
    for batch in batches(tokens.lengths[sentence], MAX_TOKENS):
        own = np.stack([tokens.tokens[i] for i in sentence[batch]])
        ids = torch.from_numpy(own).to(loaded.device)
        first, last = torch.from_numpy(tokens.spans[batch].T[..., None].copy()).to(loaded.device)
        place = torch.arange(ids.shape[1], device=loaded.device)
        hidden = (place >= first) & (place <= last)
        with torch.inference_mode(), quietly(), during(sentence[batch]):
            logits = model(input_ids=ids.masked_fill(hidden, mask)).logits.float()
            logs = logits.log_softmax(dim=-1).gather(2, ids[..., None])[..., 0]
        values[batch] = (-(logs * hidden).double().sum(dim=1) / math.log(2)).cpu().numpy()
    return values


def _tokenized(stimuli: StimulusSet, loaded: LoadedModel) -> TokenizedStimuli:
    try:
        return tokenize(stimuli, loaded, "start")
    except InputError:
        # It has no start token; where that is not the reason, the same is said again.
        return tokenize(stimuli, loaded)
