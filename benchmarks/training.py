"""Section `training`: a step of each small model, over one as PyTorch and transformers do it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from benchmarks.timing import Table, in_turn, printed_numbers
from training import products
from training.networks import MASKED, NAMES, OBJECTIVES, build, mask
from training.recipe import SIZES
from training.train import learn, prepared

FULL = SIZES["full"]


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured. A kind has a process: each compiles its own."""
    kind = "bfloat16 autocast" if products.native() else "float32"
    for name in NAMES:
        ours, theirs = printed_numbers("benchmarks.training", name, runs)
        tokens = FULL.plans[name].rows * FULL.shape.longest
        table.add(
            f"a step of {name}",
            f"{1000 * ours:.0f} ms ({tokens / ours:,.0f} tokens/s)",
            f"{1000 * theirs:.0f} ms",
            f"{ours / theirs:.2f}",
        )
    if not products.native():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        a, b = torch.randn(1024, 128).bfloat16(), torch.randn(128, 512).bfloat16()
        ours, theirs = in_turn(partial(products.matmul, a, b), partial(torch.matmul, a, b), runs)
        torch.set_num_threads(threads)
        table.add(
            "(1024, 128) times (128, 512) in bfloat16",
            f"{1000 * ours:.1f} ms",
            f"{1000 * theirs:.1f} ms by PyTorch",
            f"{ours / theirs:.3f}",
        )
    return (
        f"the full size on one core, rows of {FULL.shape.longest} tokens; medians of {runs} steps "
        "in turn after two; compared with the networks of transformers (the bidirectional Mamba: "
        f"its mixers), not compiled, in {kind}, and PyTorch's own cross entropy, Muon and "
        "AdamW"
    )


def of_pytorch(name: str) -> Callable[[torch.Tensor, int], None]:
    """A step of a kind on a batch (n_rows, n_tokens), with nothing of our own but the network."""
    model = build(name, FULL.shape, 0).train()
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim == 2 and max(p.shape) < FULL.shape.vocabulary]
    rest = [p for p in parameters if not any(p is matrix for matrix in matrices)]
    optimizing = [torch.optim.Muon(matrices), torch.optim.AdamW(rest, fused=True)]
    words = model.get_output_embeddings().weight

    def step(ids: torch.Tensor, number: int) -> None:
        shown, at = ids[:, :-1], torch.ones_like(ids[:, :-1], dtype=torch.bool)
        targets = ids[:, 1:]
        if OBJECTIVES[name] == MASKED:
            drawn = torch.Generator().manual_seed(number)
            share = FULL.plans[name].mask_share
            (shown, at), targets = mask(ids, share, FULL.shape.vocabulary, drawn), ids
        with torch.autocast("cpu", torch.bfloat16, enabled=products.native()):
            states = model.base_model(input_ids=shown, use_cache=False).last_hidden_state
            loss = F.cross_entropy((states[at] @ words.T).float(), targets[at])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizing:
            optimizer.step()
            optimizer.zero_grad()

    return step


def main() -> None:
    """Print the seconds of a step of a kind, ours and PyTorch's."""
    name, runs = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    plan = FULL.plans[name]
    model, optimizing = prepared(name, FULL.shape, plan)
    theirs = of_pytorch(name)
    ids = torch.randint(5, FULL.shape.vocabulary, (plan.rows, FULL.shape.longest))

    def ours() -> None:
        learn(name, model, optimizing, ids, plan, plan.steps // 2)

    for _ in range(2):
        ours()
        theirs(ids, 0)
    print(*in_turn(ours, partial(theirs, ids, 1), runs))


if __name__ == "__main__":
    main()
