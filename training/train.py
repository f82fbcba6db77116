"""The training of one model: packed text, AdamW, a learning rate that rises and falls to zero.

Everything that is drawn depends on the seed and the number of the step alone, so that a run that
was stopped goes on from its last checkpoint as if it had not been.
"""

from __future__ import annotations

import csv
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from training.networks import Shape, build, causal_losses, for_training, mask, masked_losses
from training.vocabulary import END, START

CURVE = ("step", "tokens", "train_bits_per_token", "dev_bits_per_token", "learning_rate")


@dataclass(frozen=True)
class Plan:
    """How long and how a model is trained."""

    steps: int
    rows: int = 8
    rate: float = 2e-3
    warmup: float = 0.05
    decay: float = 0.05
    mask_share: float = 0.3
    # (share of the steps, tokens in a row) before the rows are as long as the model reads; a batch
    # has as many tokens all along.
    short: tuple[tuple[float, int], ...] = ()
    check: int = 250  # steps between checkpoints and points of the curve
    seed: int = 0


def pack(groups: list[list[list[int]]], longest: int, order: np.random.Generator) -> torch.Tensor:
    """Documents as rows of `longest` tokens (n_rows, longest), groups in random order.

    Each document is put between the start and the end token, and they follow one another; what
    does not fill a last row is left out.
    """
    stream: list[int] = []
    for number in order.permutation(len(groups)):
        for document in groups[number]:
            stream += [START, *document, END]
    n = len(stream) // longest
    return torch.tensor(stream[: n * longest]).view(n, longest)


def _batches(groups: list[list[list[int]]], plan: Plan, longest: int, first: int) -> Any:
    """The batches from step `first` on; each round through the text has an order of its own."""
    step, round_, begin = 0, 0, 0.0
    for share, length in (*plan.short, (math.inf, longest)):
        end = (begin + share) * plan.steps
        n_rows = plan.rows * longest // length
        while step < end:
            rows = pack(groups, length, np.random.default_rng([plan.seed, round_]))
            rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(round_))]
            whole = max(1, len(rows) // n_rows)
            for batch in rows.split(n_rows)[:whole]:
                if step >= min(end, plan.steps):
                    break
                if step >= first:
                    yield batch
                step += 1
            round_ += 1
            if step >= plan.steps:
                return
        begin += share


def rate(plan: Plan, step: int) -> float:
    """The learning rate: up in a straight line, then down along half a cosine to zero."""
    rise = max(1, round(plan.warmup * plan.steps))
    if step < rise:
        return plan.rate * (step + 1) / rise
    return plan.rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, plan.steps - rise)))


def losses(name: str, model: Any, ids: torch.Tensor, plan: Plan, step: int) -> torch.Tensor:
    """The losses of a batch, in nats: one per predicted token."""
    with torch.autocast("cpu", torch.bfloat16):
        if name != "mini-bert":
            return causal_losses(model, ids)
        generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + step)
        shown, at = mask(ids, plan.mask_share, model.config.vocab_size, generator)
        return masked_losses(model, ids, shown, at)


def train(
    name: str,
    shape: Shape,
    plan: Plan,
    groups: list[list[list[int]]],
    dev: torch.Tensor,
    folder: Path,
    begin: Any = None,
) -> Any:
    """Train a model on groups of tokenised documents, and return it in float32.

    It begins with the weights of the model `begin`, or with random ones. Checkpoints and
    `curve.csv` go into `folder`; a run that finds them there goes on.
    """
    model = for_training(name, build(name, shape, plan.seed)).train()
    if begin is not None:
        model.load_state_dict(begin.state_dict())
    # Norms, biases and Mamba's own parameters are not pulled towards zero.
    flat = [p for n, p in model.named_parameters() if p.ndim < 2 or "A_log" in n]
    full = [p for n, p in model.named_parameters() if not (p.ndim < 2 or "A_log" in n)]
    optimizer = torch.optim.AdamW(
        [{"params": full, "weight_decay": plan.decay}, {"params": flat, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
        eps=1e-8,
        foreach=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    first, curve = _resume(folder, model, optimizer)
    recent: list[float] = []
    start, taken = time.monotonic(), first
    for step, ids in enumerate(_batches(groups, plan, shape.longest, first), first):
        for group in optimizer.param_groups:
            group["lr"] = rate(plan, step)
        loss = losses(name, model, ids, plan, step).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(float(loss.detach()))
        taken = step + 1
        if taken % plan.check == 0 or taken == plan.steps:
            seen = taken * plan.rows * shape.longest
            bits = check(name, model, dev, plan)
            now = rate(plan, step)
            curve.append([taken, seen, float(np.mean(recent)) / math.log(2), bits, now])
            recent.clear()
            _save(folder, model, optimizer, taken, curve)
            speed = (taken - first) * ids.numel() / (time.monotonic() - start)
            print(f"{name} {taken}/{plan.steps} train {curve[-1][2]:.3f} dev {bits:.3f} "
                  f"bits/token, {speed:.0f} tokens/s", flush=True)  # fmt: skip
    return model.eval()


@torch.no_grad()
def check(name: str, model: Any, rows: torch.Tensor, plan: Plan) -> float:
    """Bits per predicted token of held-out rows; the masked ones are the same at each check."""
    parts = [losses(name, model, part, plan, -1 - i) for i, part in enumerate(rows.split(16))]
    return float(torch.cat([part.flatten() for part in parts]).mean()) / math.log(2)


def _resume(folder: Path, model: Any, optimizer: Any) -> tuple[int, list[list[float]]]:
    state = folder / "state.json"
    if not state.is_file():
        return 0, []
    told = json.loads(state.read_text())
    tensors = load_file(folder / f"checkpoint-{told['step']}.safetensors")
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
            optimizer.state[parameter] = {
                "step": torch.tensor(float(told["step"])),
                "exp_avg": tensors[f"first.{name}"].clone(),
                "exp_avg_sq": tensors[f"second.{name}"].clone(),
            }
    return told["step"], told["curve"]


def _save(folder: Path, model: Any, optimizer: Any, step: int, curve: list[list[float]]) -> None:
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach().clone()
        tensors[f"first.{name}"] = optimizer.state[parameter]["exp_avg"]
        tensors[f"second.{name}"] = optimizer.state[parameter]["exp_avg_sq"]
    save_file(tensors, folder / f"checkpoint-{step}.safetensors")
    state = folder / "state.json"
    state.with_suffix(".new").write_text(json.dumps({"step": step, "curve": curve}))
    state.with_suffix(".new").replace(state)
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != f"checkpoint-{step}.safetensors":
            old.unlink()
    with (folder / "curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CURVE)
        writer.writerows(
            [[step, tokens, *(f"{x:.5g}" for x in rest)] for step, tokens, *rest in curve]
        )
