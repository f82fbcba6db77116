"""Surprisal against transformers' own loss and against models whose probabilities are known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from mlem_core.analysis.source import StimulusSource
from mlem_core.base.errors import InputError
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.models.loading import load_with_head, open_model
from mlem_core.models.surprisal import surprisal, word_surprisal
from mlem_core.models.tokens import tokenize

SENTENCES = ["the grandmother hesitated", "why did Christopher whisper", "the men sing"]
STIMULI = from_frame(
    pd.DataFrame(
        [(s, i, len(w), w) for s in SENTENCES for i, w in enumerate(s.split())],
        columns=["sentence", "word_index", "f", "g"],
    ),
    "words",
)


@pytest.mark.parametrize("name", ["mini-gpt2", "mini-mamba"])
def test_surprisal_is_transformers_own_loss_on_the_tokens_of_the_word(name):
    loaded = open_model(name, "cpu")
    model = load_with_head(loaded)
    tokenized = tokenize(STIMULI, loaded, "start")
    expected = []
    for row in range(len(STIMULI)):
        sentence = next(i for i, rows in enumerate(tokenized.stimuli) if row in rows)
        ids = torch.from_numpy(tokenized.tokens[sentence])[None]
        first, last = tokenized.words[row]
        labels = torch.full_like(ids, -100)
        labels[0, first : last + 1] = ids[0, first : last + 1]
        with torch.inference_mode():
            loss = model(input_ids=ids, labels=labels).loss
        expected.append(float(loss) * (last - first + 1) / math.log(2))
    found = surprisal(STIMULI, name, "cpu")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len({last - first for first, last in tokenized.words}) > 1  # words of several tokens


def test_a_model_that_knows_nothing_gives_the_size_of_its_vocabulary():
    """All logits equal: log2 of the vocabulary for each sub-token."""
    loaded = open_model("mini-gpt2", "cpu")
    model = load_with_head(loaded)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    tokenized = tokenize(STIMULI, loaded, "start")
    tokens = tokenized.words[:, 1] - tokenized.words[:, 0] + 1
    expected = tokens * math.log2(model.config.vocab_size)
    np.testing.assert_allclose(word_surprisal(tokenized, loaded, model), expected, rtol=1e-5)


def test_without_a_start_token_the_first_word_is_missing():
    loaded = open_model("mini-gpt2", "cpu")
    found = word_surprisal(tokenize(STIMULI, loaded, "none"), loaded, load_with_head(loaded))
    np.testing.assert_array_equal(np.isnan(found), STIMULI.word_index == 0)


def test_frequent_words_surprise_less():
    source = StimulusSource("probing", add=("frequency", "surprisal:mini-gpt2"))
    stimuli = source.load_stimuli()
    assert [f.name for f in stimuli.features][-2:] == ["frequency", "surprisal_mini_gpt2"]
    table = stimuli.table[["frequency", "surprisal_mini_gpt2"]].astype(float)
    assert table.corr("spearman").iloc[0, 1] < -0.3


def test_what_has_no_surprisal():
    with pytest.raises(InputError, match="sees what comes after a word"):
        surprisal(STIMULI, "mini-bert", "cpu")
    with pytest.raises(InputError, match="is a feature of words"):
        surprisal(datasets.load("relative-clauses"), "mini-gpt2", "cpu")
