"""What the small models learn from and how they are measured: text, baselines, minimal pairs."""

from __future__ import annotations

import itertools
import json
import math
import struct
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from untrained import SMALL, small_tokenizer

from grammars import probing
from training import evaluate, ngram, recipe, text, writer
from training.networks import build, masked_losses
from training.pairs import PHENOMENA, Pair, pairs
from training.vocabulary import END, MASK, START

HERE = Path(__file__).resolve().parents[2]


# --- baselines -----------------------------------------------------------------------------


def chain(n: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [list(rng.integers(0, 6, rng.integers(1, 9))) for _ in range(n)]


def test_kneser_ney_is_a_distribution_in_every_context():
    model = ngram.KneserNey(chain(60), size=8)
    units = [*range(7), -2]  # 6 comes nowhere
    for context in [(-1, -1), (-1, 3), (2, 5), (0, 0), (6, 6), (1, 6)]:
        assert math.isclose(sum(model.probability(context, u) for u in units), 1.0)


def test_kneser_ney_by_hand():
    # One document "a b": each trigram once, so that discounts are those of counts of one.
    model = ngram.KneserNey([["a", "b"]], size=4)
    d = model.discounts[2][1]
    lower = model.probability(("z", "a"), "b")  # an unseen history: the bigram's answer
    assert math.isclose(model.probability((-1, "a"), "b"), (1 - d) + d * lower)


def test_jelinek_mercer_finds_the_best_weights():
    documents, dev = chain(60), chain(80)[60:]
    model = ngram.JelinekMercer(documents, dev, size=7)
    best = sum(model.bits(document).sum() for document in dev)
    assert math.isclose(model.weights.sum(), 1.0)
    fitted = model.weights
    for move in itertools.permutations(range(4), 2):
        weights = fitted.copy()
        step = min(0.01, weights[move[0]])
        weights[move[0]] -= step
        weights[move[1]] += step
        model.weights = weights
        assert sum(model.bits(document).sum() for document in dev) >= best * (1 - 1e-4)


def test_a_trigram_model_knows_a_text_that_repeats_itself():
    documents = [[0, 1, 2, 3]] * 200
    assert ngram.KneserNey(documents, size=5).bits([0, 1, 2, 3]).sum() < 0.2
    assert ngram.JelinekMercer(documents, documents[:9], size=5).bits([0, 1, 2, 3]).sum() < 0.2


def test_an_unknown_word_costs_its_letters():
    vocabulary = ngram.Vocabulary([["the", "cat"], ["the", "dog"]])
    assert vocabulary.known == {"the"}
    assert vocabulary.units(["the", "cow"]) == ["the", "<unk>"]
    assert vocabulary.spelling_bits(["the"]) == 0
    assert vocabulary.spelling_bits(["cow"]) > vocabulary.spelling_bits(["cat"]) > 0


# --- evaluation ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [9, 16, 17, 24, 70])
def test_every_token_of_a_stream_is_counted_once(n):
    model = build("mini-gpt2", SMALL, 0).eval()
    torch.nn.init.zeros_(model.transformer.wte.weight)  # all tokens are as likely
    ids = [START, *([7, 8, END, START] * 20)][:n]
    expected = 6 * sum(token != START for token in ids[1:])
    assert math.isclose(evaluate.causal_bits("mini-gpt2", model, ids, 16), expected, rel_tol=1e-5)


def test_causal_bits_are_those_of_the_whole_text_where_it_fits():
    model = build("mini-gpt2", SMALL, 3).eval()
    ids = [START, 9, 30, 12, 40, END]
    with torch.no_grad():
        shares = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), 1)
    expected = -sum(float(shares[i, ids[i + 1]]) for i in range(5)) / math.log(2)
    assert math.isclose(evaluate.causal_bits("mini-gpt2", model, ids, 16), expected, rel_tol=1e-5)


def test_the_unigram_baseline_is_the_entropy_of_its_own_text():
    bits = evaluate.unigrams([[5] * 999_999, [6] * 999_999], 7)
    assert math.isfinite(bits[1])  # a letter that the training text lacks
    assert np.allclose(bits[5:], 1.0, atol=1e-5) and np.isinf(bits[[0, 2, 3, 4]]).all()


def test_a_masked_model_is_asked_for_each_token_with_the_rest_of_its_word_masked():
    tokenizer, model = small_tokenizer(), build("mini-bert", SMALL, 2).eval()
    sentence = "the dogsees see"
    encoding = tokenizer.encode(sentence)
    assert len(encoding.ids) > len(set(encoding.word_ids)) > 1
    ids, expected = torch.tensor([[START, *encoding.ids, END]]), 0.0
    for i, word in enumerate(encoding.word_ids):
        shown = ids.clone()
        for j in range(i, len(encoding.ids)):
            if encoding.word_ids[j] == word:
                shown[0, j + 1] = MASK
        at = (torch.tensor([0]), torch.tensor([i + 1]))
        with torch.no_grad():
            expected += float(masked_losses("mini-bert", model, ids, shown, at)) / math.log(2)
    found = evaluate.sentence_bits("mini-bert", model, tokenizer, ["see it", sentence, "a cat"])[1]
    assert math.isclose(found, expected, rel_tol=1e-5)


def test_preferences_count_draws_as_one_half():
    tokenizer, model = small_tokenizer(), build("mini-gpt2", SMALL, 2).eval()
    a, b = "the cat see", "the cat sees"
    bits = evaluate.sentence_bits("mini-gpt2", model, tokenizer, [a, b])
    good, bad = (a, b) if bits[0] < bits[1] else (b, a)
    made = [
        Pair(PHENOMENA[0], "singular", good, bad),
        Pair(PHENOMENA[0], "plural", bad, good),
        Pair(PHENOMENA[0], "plural", a, a),
    ]
    found = evaluate.prefer("mini-gpt2", model, tokenizer, made)
    assert found == {PHENOMENA[0]: {"share": 0.5, "n": 3.0, "plural": 0.25, "singular": 1.0}}


def test_minimal_pairs_are_balanced_and_differ_in_one_known_word():
    words = [*probing.NOUNS, *(plural for plural, _ in probing.NOUNS.values())]
    for verbs in (probing.INTRANSITIVE, probing.TRANSITIVE):
        words += [form for verb in verbs.values() for form in verb]
    known = " ".join(word for word in words if word not in ("nun", "sneezes"))
    made = pairs([known] * 5, n=200)
    for phenomenon in PHENOMENA:
        cases = Counter(pair.case for pair in made if pair.phenomenon == phenomenon)
        assert len(cases) == 2 and set(cases.values()) == {100}
    for pair in made:
        right, wrong = pair.right.split(), pair.wrong.split()
        assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
        assert not {"nun", "nuns", "sneeze", "sneeze.", "sneezes."} & {*right, *wrong}
    assert len(set(made)) == len(made)
    by_hand = {pair.right: pair.wrong for pair in made}
    for right, wrong in by_hand.items():
        assert wrong not in by_hand, right


@pytest.mark.parametrize("which", ["pairs.csv", "harder.csv"])
def test_the_pairs_of_the_repository_come_out_again(which):
    kept = recipe.read_pairs(HERE / "training" / which)
    told = {word.strip(".") for pair in kept for word in f"{pair.right} {pair.wrong}".split()}
    verbs = [*probing.INTRANSITIVE.values(), *probing.TRANSITIVE.values()]
    forms = [form for verb in verbs if told & {*verb} for form in verb]
    for singular, (plural, _) in probing.NOUNS.items():
        forms += [singular, plural] * (singular in told)
    assert pairs([" ".join(forms)] * 5) == kept


# --- text ----------------------------------------------------------------------------------


def test_text_becomes_plain():
    assert text.clean("“_You_ can’t—can\nyou?”") == '"You can\'t-can you?"'
    assert text.clean("to-morrow--perhaps") == "to-morrow - perhaps"


def test_loops_copies_chatter_and_cut_sentences_of_the_writer_are_dropped(tmp_path):
    told = [
        ("The king sees a dog. He smiles and", False),
        ("The king sees a dog.", True),
        ("He was sad. " * 9, True),
        ("I wrote this sentence in the present tense.", True),
        ("No.", True),
    ]
    file = tmp_path / "written.jsonl"
    file.write_text("".join(json.dumps({"text": t, "done": d}) + "\n" for t, d in told))
    assert text.tidy_stories([file]) == ["The king sees a dog."]


def test_the_character_vectors_of_an_r_database():
    vectors = [["EMMA", "", "By Jane Austen"], ["café"]]
    database = b""
    for lines in vectors:
        strings = [line.encode() for line in lines]
        block = b"X\n\x00\x00\x00\x03\x00\x00\x00\x10" + b"".join(
            b"\x00\x04\x00\x09" + struct.pack(">i", len(s)) + s for s in strings
        )
        database += struct.pack(">I", len(block)) + zlib.compress(block)
    assert text._character_vectors(database) == vectors


def test_the_parts_of_the_text_share_no_story(tmp_path):
    told = text.load(tmp_path, ("stories",))
    parts = [set(told.documents(part)) for part in text.PARTS]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    shares = [len(part) / sum(map(len, parts)) for part in parts]
    assert shares[0] > 0.9 and min(shares) > 0.005


def test_the_writer_reads_as_transformers_does_also_after_a_restart():
    config = hf.LlamaConfig(
        vocab_size=50,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 50, (1, 6))
    decoder = writer.Decoder(model, 2, window=8)
    with torch.inference_mode():
        expected = model(ids).logits[0]
        for _ in range(5):  # the other text of this row, over whose places in the ring it goes on
            decoder(torch.tensor([3, 4]))
        decoder.restart(1)
        ours = torch.stack([decoder(torch.tensor([9, int(token)]))[1] for token in ids[0]])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
