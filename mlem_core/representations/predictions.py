"""What a model predicts of words."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.representations.extraction import During, batches, untouched
from mlem_core.representations.forward import LoadedModel, quietly
from mlem_core.representations.tokens import TokenizedStimuli, tokenize
from mlem_core.stimuli.stimulus_set import StimulusSet

# A batch's logits are tokens times vocabulary: 100 MB at 50,000.
MAX_TOKENS = 512


class Predictions(NamedTuple):
    """Predictions of a causal model at words: (n_stimuli,) each.

    surprisal : in bits, −log2 of the probability of the word after the words before it: the sum
        over its sub-tokens, what is glued to it included, whether or not the word ends there. NaN
        of a first word without a start token before it
    entropy : in bits, of the token after the word
    likeliest : the number of the most likely token after the word
    """

    surprisal: FloatArray
    entropy: FloatArray
    likeliest: IntArray


def word_predictions(
    tokens: TokenizedStimuli,
    loaded: LoadedModel,
    model: Any,
    during: During = untouched,
    *,
    begins: IntArray | None = None,
) -> Predictions:
    """Predictions at stimuli that are tokenised, from a model with its head.

    Parameters
    ----------
    during : gives what the sentences of a batch, by their numbers, are run in
    begins : numbers of the tokens that begin another word, for the surprisal of whole words: times
        the probability that one of them is next, divided by the one that the word's first token is
        one of them, where it is (Pimentel and Meister 2024, Oh and Schuler 2024)
    """
    import torch

    values, entropy = np.full((2, len(tokens.spans)), np.nan)
    likeliest = np.zeros(len(tokens.spans), dtype=np.int64)
    for batch in batches(tokens.lengths, MAX_TOKENS):
        ids = torch.from_numpy(np.stack([tokens.tokens[i] for i in batch])).to(loaded.device)
        with torch.inference_mode(), quietly(), during(batch):
            logs = model(input_ids=ids).logits.float().log_softmax(dim=-1)
            next_logs = logs[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
            of_next = -(logs.exp() * logs).sum(dim=-1), logs.argmax(dim=-1)
            ends = None if begins is None else logs[..., begins].logsumexp(dim=-1).double().cpu()
        bits = -next_logs.double().cpu().numpy() / math.log(2)
        spread, best = (each.cpu().numpy() for each in of_next)
        for at, i in enumerate(batch):
            for row in tokens.stimuli[i]:
                first, last = tokens.spans[row]
                entropy[row] = spread[at, last] / math.log(2)
                likeliest[row] = best[at, last]
                # A sentence without a start token is predicted from its second token on.
                first = max(first, int(tokens.level == "sentence"))
                if 0 < first <= last:
                    values[row] = bits[at, first - 1 : last].sum()
                    if begins is not None and ends is not None:
                        before = ends[at, first - 1] if tokens.tokens[i][first] in begins else 0.0
                        values[row] += float(before - ends[at, last]) / math.log(2)
    return Predictions(values, entropy, likeliest)


def tokenized(stimuli: StimulusSet, loaded: LoadedModel) -> TokenizedStimuli:
    """Stimuli as tokens of a model, after a start token where it has one.

    Raises as `mlem_core.representations.tokens.tokenize`.
    """
    try:
        return tokenize(stimuli, loaded, "start")
    except InputError:
        # It has no start token; where that is not the reason, the same is said again.
        return tokenize(stimuli, loaded)
