"""The training of the small models: loops in C, Muon, batches, rates, going on after a stop."""

from __future__ import annotations

import csv
import math
from collections import Counter

import numpy as np
import pytest
import torch
from untrained import SMALL

from mlem_core.models.loaded import quiet
from training import loss, muon, recipe, scan, train
from training.networks import (
    MASKED,
    NAMES,
    OBJECTIVES,
    build,
    causal_losses,
    for_training,
    mask,
    masked_losses,
)
from training.vocabulary import END, MASK, START

DOCUMENTS = [[[5 + (i * j) % 50 for j in range(3, 9)]] for i in range(40)]


# --- the scan ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_the_scan_gives_the_outputs_and_gradients_of_transformers(kind, monkeypatch):
    if kind == "plain":
        monkeypatch.setattr(scan, "library", lambda name: None)
    elif scan.library("scan") is None:
        pytest.skip("no C compiler here")
    model = build("mini-mamba", SMALL, 1)
    with torch.no_grad():  # away from the initial values
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    ids = torch.randint(5, 64, (3, 11))

    def both() -> list[torch.Tensor]:
        model.zero_grad()
        out = model(ids, labels=ids, use_cache=False)
        out.loss.backward()
        return [out.logits.detach(), *(p.grad.clone() for p in model.parameters())]

    with quiet():
        theirs = both()
    scan.quicken(model)
    for ours, expected in zip(both(), theirs, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    # The smallest numbers are what they were to everything else in this process.
    assert np.float64(1e-308) * np.float64(0.1) > 0


# --- Muon ----------------------------------------------------------------------------------


def test_muon_of_many_matrices_is_that_of_each():
    torch.manual_seed(0)
    shapes = [(6, 4), (4, 6), (6, 4), (3, 3), (6, 4)]
    start, settings = [torch.randn(shape) for shape in shapes], {"momentum": 0.9, "lr": 0.1}
    made = []
    for kind in (muon.Muon, torch.optim.Muon):
        own = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        optimizer = kind(own, weight_decay=0.2, adjust_lr_fn="match_rms_adamw", **settings)
        for step in range(3):
            for number, matrix in enumerate(own):
                matrix.grad = torch.randn(
                    matrix.shape, generator=torch.Generator().manual_seed(10 * step + number)
                )
            own[3].grad = own[3].grad if step else None
            optimizer.step()
        made.append(own)
    # Both multiply in bfloat16: two digits.
    for ours, theirs, first in zip(*made, start, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)
        assert (ours - first).abs().max() > 0.05


# --- the loss ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compiled", "plain"])
@pytest.mark.parametrize("biased", [True, False])
def test_the_loss_and_its_gradients_are_those_of_torch(kind, biased, monkeypatch):
    if kind == "plain":
        monkeypatch.setattr(loss, "library", lambda name: None)
    elif loss.library("loss") is None:
        pytest.skip("no C compiler here")
    torch.manual_seed(0)
    # Numbers that bfloat16 has, so that only sums are rounded.
    states = torch.randn(70, 16).bfloat16().float().requires_grad_()
    words = torch.randn(90, 16).bfloat16().float().requires_grad_()
    bias = torch.randn(90, requires_grad=True) if biased else None
    targets = torch.randint(0, 90, (70,))
    leaves = [states, words, *([bias] if biased else [])]
    ours = loss.mean_nats(states, words, bias, targets)
    gradients = torch.autograd.grad(3 * ours, leaves)
    theirs = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(states, words, bias), targets
    )
    torch.testing.assert_close(ours, theirs, atol=0.01, rtol=0)
    for found, expected in zip(gradients, torch.autograd.grad(3 * theirs, leaves), strict=True):
        assert float((found - expected).norm() / expected.norm()) < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_of_a_step_is_the_mean_of_those_that_are_evaluated(name):
    plan, model = train.Plan(steps=9), for_training(name, build(name, SMALL, 4))
    ids = torch.randint(5, 64, (4, 16))
    with torch.no_grad():
        found = float(train.mean_loss(name, model, ids, plan, 3))
        if OBJECTIVES[name] == MASKED:
            expected = masked_losses(name, model, ids, *train._masked(model, ids, plan, 3)).mean()
        else:
            expected = causal_losses(name, model, ids).mean()
    assert math.isclose(found, float(expected), rel_tol=0.01)  # bfloat16 against float32


# --- training ------------------------------------------------------------------------------


def test_packing_keeps_every_document_and_its_order_in_a_group():
    groups = [[[10, 11], [12]], [[20, 21, 22]]]
    rows = train.pack(groups, 3, np.random.default_rng(0)).flatten().tolist()
    first = [START, 10, 11, END, START, 12, END]
    assert rows in (
        [*first, START, 20, 21, 22, END],
        [START, 20, 21, 22, END, *first],
    )


@pytest.mark.parametrize("short", [(), ((0.25, 4), (0.25, 8))])
def test_batches_have_as_many_tokens_all_along_and_go_on_where_they_stopped(short):
    plan = train.Plan(steps=40, rows=2, short=short)
    batches = list(train._batches(DOCUMENTS, plan, 16, 0))
    assert len(batches) == 40 and {b.numel() for b in batches} == {32}
    lengths = Counter(b.shape[1] for b in batches)
    assert lengths == ({4: 10, 8: 10, 16: 20} if short else {16: 40})
    for ours, expected in zip(train._batches(DOCUMENTS, plan, 16, 23), batches[23:], strict=True):
        assert torch.equal(ours, expected)


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


def test_the_learning_rate_rises_and_falls_to_zero():
    plan = train.Plan(steps=100, rate=1.0, warmup=0.1)
    rates = [train.rate(plan, step) for step in range(100)]
    assert rates[9] == 1.0 == max(rates) and rates[0] == 0.1 and rates[-1] < 0.001
    twice = train.Plan(steps=150, again=(100,), rate=1.0, warmup=0.1)
    again = [train.rate(twice, step) for step in range(150)]
    assert again[:100] == rates and max(again[100:]) == 0.5 and again[-1] < 0.001


def test_a_network_that_is_compiled_as_a_whole_learns_the_same(tmp_path, monkeypatch):
    if loss.library("scan") is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(train, "BACKEND", "aot_eager")  # the same graph, in a tenth of the time
    losses = []
    for whole in (False, True):
        plan = train.Plan(steps=3, rows=2, check=3, whole=whole)
        dev = train.pack(DOCUMENTS[:6], 16, np.random.default_rng(0))
        train.train("mini-mamba", SMALL, plan, DOCUMENTS, dev, tmp_path / str(whole))
        rows = list(csv.DictReader((tmp_path / str(whole) / "curve.csv").open()))
        losses.append(float(rows[-1]["dev_bits_per_token"]))
    assert math.isclose(*losses, rel_tol=0.01)


def test_the_kinds_have_about_as_many_parameters():
    shape = recipe.SIZES["full"].shape
    counts = [sum(p.numel() for p in build(name, shape, 0).parameters()) for name in NAMES]
    assert max(counts) / min(counts) < 1.02
