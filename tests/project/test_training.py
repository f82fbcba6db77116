"""The training of the small models: loops in C, Muon, products, batches, rates, evaluation."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from mlem_core.representations.forward import quietly
from training import evaluate, loss, muon, scan, train
from training.networks import NAMES, Shape, build, for_training, mask, masked_losses
from training.vocabulary import END, MASK, START, fit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
SMALL = Shape(vocabulary=64, width=32, layers=2, mamba_layers=2, heads=2, states=4, longest=16)
DOCUMENTS = [[[5 + (i * j) % 50 for j in range(3, 9)]] for i in range(40)]


@pytest.fixture(autouse=True)
def _the_same_numbers():
    torch.manual_seed(0)


def small_tokenizer():
    """A tokenizer of forty tokens."""
    return fit(["the dogs see the cat", "a cat sees dogs", "they see it"] * 5, 40)


def compiled_or_plain(kind, module, monkeypatch):
    """A module with its loops in C, or without a compiler."""
    if kind == "plain":
        monkeypatch.setattr(module, "library", lambda name: None)
    elif module.library(module.__name__.rpartition(".")[2]) is None:
        pytest.skip("no C compiler here")


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_the_scan_gives_the_outputs_and_gradients_of_transformers(kind, monkeypatch):
    compiled_or_plain(kind, scan, monkeypatch)
    model = build("mini-mamba", SMALL, 1)
    with torch.no_grad():  # away from the initial values
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    ids = torch.randint(5, 64, (3, 11))

    def both():
        model.zero_grad()
        out = model(ids, labels=ids, use_cache=False)
        out.loss.backward()
        return [out.logits.detach(), *(p.grad.clone() for p in model.parameters())]

    with quietly():
        theirs = both()
    scan.quicken(model)
    for ours, expected in zip(both(), theirs, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    # The smallest numbers are what they were to everything else in this process.
    assert np.float64(1e-308) * np.float64(0.1) > 0


def test_muon_of_many_matrices_is_that_of_each():
    shapes = [(6, 4), (4, 6), (6, 4), (3, 3), (6, 4)]
    start, settings = [torch.randn(shape) for shape in shapes], {"momentum": 0.9, "lr": 0.1}
    made = []
    for kind in (muon.Muon, torch.optim.Muon):
        own = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        optimizer = kind(own, weight_decay=0.2, adjust_lr_fn="match_rms_adamw", **settings)
        for step in range(3):
            for number, matrix in enumerate(own):
                drawn = torch.Generator().manual_seed(10 * step + number)
                matrix.grad = torch.randn(matrix.shape, generator=drawn)
            own[3].grad = own[3].grad if step else None
            optimizer.step()
        made.append(own)
    # Both multiply in bfloat16: two digits.
    for ours, theirs, first in zip(*made, start, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)
        assert (ours - first).abs().max() > 0.05


@pytest.mark.parametrize("kind", ["compiled", "plain"])
@pytest.mark.parametrize("biased", [True, False])
def test_the_loss_and_its_gradients_are_those_of_torch(kind, biased, monkeypatch):
    compiled_or_plain(kind, loss, monkeypatch)
    # Numbers that bfloat16 has, so that only sums are rounded.
    states = torch.randn(70, 16).bfloat16().float().requires_grad_()
    words = torch.randn(90, 16).bfloat16().float().requires_grad_()
    bias = torch.randn(90, requires_grad=True) if biased else None
    targets = torch.randint(0, 90, (70,))
    leaves = [states, words, *([bias] if biased else [])]
    ours = loss.mean_nats(states, words, bias, targets)
    gradients = torch.autograd.grad(3 * ours, leaves)
    theirs = cross_entropy(linear(states, words, bias), targets)
    torch.testing.assert_close(ours, theirs, atol=0.01, rtol=0)
    for found, expected in zip(gradients, torch.autograd.grad(3 * theirs, leaves), strict=True):
        assert float((found - expected).norm() / expected.norm()) < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(name, tmp_path, monkeypatch):
    plan = train.Plan(steps=6, rows=2, check=3, keep=(0, 2, 6))
    dev = train.pack(DOCUMENTS[:6], 16, np.random.default_rng(0))
    whole = train.train(name, SMALL, plan, DOCUMENTS, dev, tmp_path / "whole")

    save = train._save

    def stop(*args):
        save(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_save", stop)
    with pytest.raises(KeyboardInterrupt):
        train.train(name, SMALL, plan, DOCUMENTS, dev, tmp_path / "parts")
    monkeypatch.setattr(train, "_save", save)
    parts = train.train(name, SMALL, plan, DOCUMENTS, dev, tmp_path / "parts")
    for ours, expected in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, expected)
    for step in plan.keep:
        kept = [tmp_path / run / f"step-{step}.safetensors" for run in ("whole", "parts")]
        assert kept[0].read_bytes() == kept[1].read_bytes()
    curves = [(tmp_path / run / "curve.csv").read_text() for run in ("whole", "parts")]
    assert curves[0] == curves[1] and len(curves[0].splitlines()) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_model_learns_a_text_that_repeats_itself(name, tmp_path):
    plan = train.Plan(steps=60, rows=4, check=60, rate=5e-3)
    groups = [[[6, 7, 8, 9, 10, 11]]] * 40
    rows = train.pack(groups, 16, np.random.default_rng(0))
    model = train.train(name, SMALL, plan, groups, rows, tmp_path)
    first = train.check(name, for_training(name, build(name, SMALL, 0)), rows, plan)
    assert first > 5  # about the 6 bits of 64 tokens
    assert train.check(name, model, rows, plan) < 2.5


def test_masking_asks_for_the_share_and_never_for_start_and_end():
    ids = torch.randint(5, 64, (200, 16))
    ids[:, 0], ids[:, -1] = START, END
    shown, asked = mask(ids, 0.3, 64, torch.Generator().manual_seed(0))
    assert not asked[:, 0].any() and not asked[:, -1].any()
    assert abs(asked[:, 1:-1].float().mean() - 0.3) < 0.03
    assert torch.equal(shown[~asked], ids[~asked])
    assert abs((shown[asked] == MASK).float().mean() - 0.8) < 0.05
    assert (shown[~(shown == MASK)] != MASK).all()


def test_causal_bits_are_those_of_the_whole_text_where_it_fits():
    model = build("mini-gpt2", SMALL, 3).eval()
    ids = [START, 9, 30, 12, 40, END]
    with torch.no_grad():
        shares = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), 1)
    expected = -sum(float(shares[i, ids[i + 1]]) for i in range(5)) / math.log(2)
    assert math.isclose(evaluate.causal_bits("mini-gpt2", model, ids, 16), expected, rel_tol=1e-5)


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
