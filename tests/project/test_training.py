"""The training of the small models: loops in C, Muon, products, batches, rates, evaluation."""

from __future__ import annotations

import csv
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from functorch.compile import make_boxed_func
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from torch._dynamo.backends.common import aot_autograd

from mlem_core.models.loaded import quiet
from training import evaluate, loss, muon, products, recipe, scan, train, writer
from training.networks import (
    MASKED,
    NAMES,
    OBJECTIVES,
    Shape,
    build,
    causal_losses,
    for_training,
    mask,
    masked_losses,
)
from training.pairs import PHENOMENA, Pair
from training.vocabulary import END, MASK, START, as_before, fit, wrap

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
SMALL = Shape(vocabulary=64, width=32, layers=2, mamba_layers=2, heads=2, states=4, longest=16)
DOCUMENTS = [[[5 + (i * j) % 50 for j in range(3, 9)]] for i in range(40)]
ROUNDING = 2**-8  # of a bfloat16, relative


@pytest.fixture(autouse=True)
def _the_same_numbers() -> None:
    torch.manual_seed(0)


def small_tokenizer() -> Any:
    """A tokenizer of forty tokens."""
    return fit(["the dogs see the cat", "a cat sees dogs", "they see it"] * 5, 40)


def compiled_or_plain(kind: str, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with its loops in C, or without a compiler."""
    if kind == "plain":
        monkeypatch.setattr(module, "library", lambda name: None)
    elif module.library(module.__name__.rpartition(".")[2]) is None:
        pytest.skip("no C compiler here")


# --- loops in C, Muon, the loss --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_the_scan_gives_the_outputs_and_gradients_of_transformers(kind, monkeypatch):
    compiled_or_plain(kind, scan, monkeypatch)
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


def test_muon_of_many_matrices_is_that_of_each():
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


# --- products of bfloat16 by way of float32, for processors without --------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that does not multiply bfloat16."""
    monkeypatch.setattr(products, "native", lambda: False)


def test_products_are_the_exact_ones_of_rounded_numbers_rounded_once(narrow):
    a, b = torch.randn(3, 20, 40).bfloat16(), torch.randn(3, 40, 30).bfloat16()
    exact = a.double() @ b.double()
    for autocast in (False, True):  # which would round before the product is wide
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = products.matmul(a, b)
            assert found.dtype == torch.bfloat16
            torch.testing.assert_close(found.double(), exact, rtol=ROUNDING, atol=1e-5)
            x = torch.randn(3, 20, 30).bfloat16()
            found = products.baddbmm(x, a, b, beta=0.5, alpha=2)
            expected = 0.5 * x.double() + 2 * exact
            torch.testing.assert_close(found.double(), expected, rtol=ROUNDING, atol=1e-5)


@pytest.mark.parametrize("native", [True, False])
def test_the_loss_and_muon_do_the_same_on_both_kinds_of_processors(native, monkeypatch):
    monkeypatch.setattr(products, "native", lambda: native)
    states, words = torch.randn(7, 16, requires_grad=True), torch.randn(50, 16)
    targets = torch.arange(7)
    expected = torch.nn.functional.cross_entropy(states @ words.T, targets)
    found = loss.mean_nats(states, words, None, targets)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)
    stack = torch.randn(4, 12, 30)
    found = muon.orthogonal(stack, (3.4445, -4.7750, 2.0315), 5, 1e-7).float()
    u, _, v = torch.linalg.svd(stack, full_matrices=False)
    overlap = (found * (u @ v)).sum((1, 2)) / found.norm(dim=(1, 2)) / 12**0.5
    assert (overlap > 0.95).all()


def test_a_compiled_network_has_no_product_of_bfloat16_left(narrow):
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=keep, bw_compiler=keep, decompositions=products.decompositions()
    )
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4, bias=False))
    rows = torch.randn(5, 8)

    def gradients(function: Any) -> list[torch.Tensor]:
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            function(rows).float().pow(2).sum().backward()
        return [p.grad.clone() for p in layer.parameters()]

    theirs = gradients(layer)
    ours = gradients(torch.compile(layer, backend=backend, fullgraph=True))
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)
    multiplied = [
        node.args[-1].meta["val"].dtype
        for graph in graphs
        for node in graph.graph.nodes
        if node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    ]
    assert len(multiplied) >= 4 and set(multiplied) == {torch.float32}


# --- tokenizers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_tokenizer_puts_each_model_s_own_start_and_end(name):
    masked = OBJECTIVES[name] == MASKED
    ids = wrap(small_tokenizer(), masked, 16)("The cat sees")["input_ids"]
    assert ids[0] == START and (ids[-1] == END) == masked


def test_a_tokenizer_of_the_same_tokens_keeps_their_numbers(tmp_path):
    text = ["the cat sees the dogs", "a dog sat on the mat with the cat"] * 3
    again = fit(text, 40)
    numbers = again.get_vocab()
    numbers |= {"cat": numbers["dog"], "dog": numbers["cat"]}
    earlier = Tokenizer.from_str(again.to_str())
    earlier.model = WordPiece(vocab=numbers, unk_token="<unk>")
    wrap(earlier, True, 16).save_pretrained(tmp_path)
    kept = as_before(again, tmp_path / "tokenizer.json")
    assert kept.get_vocab() == numbers != again.get_vocab()
    assert kept.encode("the cat").tokens == ["the", "cat"]  # without start and end
    other = fit(["quite another text"], 40)
    assert as_before(other, tmp_path / "tokenizer.json") is other
    assert as_before(other, tmp_path / "none.json") is other


# --- training --------------------------------------------------------------------------------


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


# --- evaluation ------------------------------------------------------------------------------


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
