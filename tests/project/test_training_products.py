"""Products of bfloat16 matrices by way of float32, for processors that do not multiply bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from torch._dynamo.backends.common import aot_autograd

from training import loss, muon, products
from training.vocabulary import as_before, fit, wrap

ROUNDING = 2**-8  # of a bfloat16, relative


@pytest.fixture(autouse=True)
def _the_same_numbers() -> None:
    torch.manual_seed(0)


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
