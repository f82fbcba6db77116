"""The training of one model: packed text, Muon, a learning rate that rises and falls to zero.

Everything that is drawn depends on the seed and the number of the step alone, so that a run that
was stopped goes on from its last checkpoint as if it had not been.
"""

from __future__ import annotations

import bisect
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

from training.compiled import keep_memory, library
from training.loss import mean_nats
from training.muon import Muon
from training.networks import (
    MASKED,
    OBJECTIVES,
    Shape,
    build,
    causal_losses,
    for_training,
    head,
    mask,
    masked_losses,
)
from training.products import inductor, native
from training.vocabulary import END, START

BACKEND: Any = inductor  # what compiles a network as a whole
CURVE = ("step", "tokens", "train_bits_per_token", "dev_bits_per_token", "learning_rate")


@dataclass(frozen=True)
class Plan:
    """How long and how a model is trained."""

    steps: int
    again: tuple[int, ...] = ()  # after which steps the rate rises and falls again, half as high
    rows: int = 8
    rate: float = 2e-3
    warmup: float = 0.05
    decay: float = 0.05
    mask_share: float = 0.3
    # (share of the steps, tokens in a row) before the rows are as long as the model reads; a batch
    # has as many tokens all along.
    short: tuple[tuple[float, int], ...] = ()
    check: int = 250  # steps between points of the curve, and from which a run can go on
    keep: tuple[int, ...] = ()  # steps after which the weights are kept
    whole: bool = False  # whether the network is compiled as a whole, which takes a minute
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
        end = round((begin + share) * plan.steps) if share < math.inf else plan.steps
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
    ends = (0, *plan.again, plan.steps)
    cycle = bisect.bisect_right(plan.again, step)
    peak, step = plan.rate / (2 if cycle else 1), step - ends[cycle]
    steps = ends[cycle + 1] - ends[cycle]
    rise = max(1, round(plan.warmup * steps))
    if step < rise:
        return peak * (step + 1) / rise
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def mean_loss(name: str, model: Any, ids: torch.Tensor, plan: Plan, step: int) -> torch.Tensor:
    """The mean loss of a batch, in nats per predicted token."""
    with torch.autocast("cpu", torch.bfloat16):
        if OBJECTIVES[name] == MASKED:
            shown, at = _masked(model, ids, plan, step)
            states, words, bias = head(name, model, _states(model, shown)[at])
            return mean_nats(states, words, bias, ids[at])
        states, words, bias = head(name, model, _states(model, ids)[:, :-1].flatten(0, 1))
        return mean_nats(states, words, bias, ids[:, 1:].flatten())


def _states(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The last hidden states, through the compiled network where there is one."""
    whole = getattr(model, "_whole", None)
    body = model.base_model if whole is None else whole
    states: torch.Tensor = body(input_ids=ids, use_cache=False).last_hidden_state
    return states


def _masked(model: Any, ids: torch.Tensor, plan: Plan, step: int) -> Any:
    generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + step)
    return mask(ids, plan.mask_share, model.config.vocab_size, generator)


def optimizers(model: Any, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between the units of layers, AdamW for all else.

    Norms, biases and Mamba's own parameters are not pulled towards zero.
    """
    hidden: list[Any] = []
    words: list[Any] = []
    flat: list[Any] = []
    for name, parameter in model.named_parameters():
        of_words = any(part in name for part in ("embed", "wte", "wpe", "decoder"))
        to = flat if parameter.ndim != 2 or "A_log" in name else words if of_words else hidden
        to.append(parameter)
    rest: list[dict[str, Any]] = [
        {"params": words, "weight_decay": plan.decay},
        {"params": flat, "weight_decay": 0.0},
    ]
    return [
        Muon(hidden, momentum=0.95, weight_decay=plan.decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, betas=(0.9, 0.98), eps=1e-8, fused=True),
    ]


def prepared(name: str, shape: Shape, plan: Plan) -> tuple[Any, list[torch.optim.Optimizer]]:
    """A model with random weights, compiled where the plan says so, and what changes them."""
    model = for_training(name, build(name, shape, plan.seed)).train()
    if plan.whole and library("scan") is not None:
        whole = torch.compile(model.base_model, dynamic=False, fullgraph=True, backend=BACKEND)
        object.__setattr__(model, "_whole", whole)
    return model, optimizers(model, plan)


def learn(
    name: str,
    model: Any,
    optimizing: list[torch.optim.Optimizer],
    ids: torch.Tensor,
    plan: Plan,
    step: int,
) -> float:
    """One step on a batch (n_rows, n_tokens); its mean loss, in nats per predicted token."""
    for optimizer in optimizing:
        for group in optimizer.param_groups:
            group["lr"] = rate(plan, step)
    loss = mean_loss(name, model, ids, plan, step)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizing:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def train(
    name: str,
    shape: Shape,
    plan: Plan,
    groups: list[list[list[int]]],
    dev: torch.Tensor,
    folder: Path,
) -> Any:
    """Train a model on groups of tokenised documents, and return it in float32.

    What a run goes on from (`state.json`, `last-<step>.safetensors`), `curve.csv` and the weights
    after the steps of `plan.keep` (`step-<step>.safetensors`, float16) go into `folder`.
    """
    keep_memory()
    model, optimizing = prepared(name, shape, plan)
    folder.mkdir(parents=True, exist_ok=True)
    first, curve = _resume(folder, model, optimizing)
    if first == 0 and 0 in plan.keep:
        _keep(folder, model, 0)
    recent: list[float] = []
    start, taken = time.monotonic(), first
    for step, ids in enumerate(_batches(groups, plan, shape.longest, first), first):
        recent.append(learn(name, model, optimizing, ids, plan, step))
        taken = step + 1
        if taken in plan.keep:
            _keep(folder, model, taken)
        if taken % plan.check == 0 or taken == plan.steps:
            seen = taken * plan.rows * shape.longest
            bits = check(name, model, dev, plan)
            now = rate(plan, step)
            curve.append([taken, seen, float(np.mean(recent)) / math.log(2), bits, now])
            recent.clear()
            _save(folder, model, optimizing, taken, curve)
            speed = (taken - first) * ids.numel() / (time.monotonic() - start)
            print(f"{name} {plan.seed} {taken}/{plan.steps} train {curve[-1][2]:.3f} "
                  f"dev {bits:.3f} bits/token, {speed:.0f} tokens/s", flush=True)  # fmt: skip
    return model.eval()


@torch.no_grad()
def check(name: str, model: Any, rows: torch.Tensor, plan: Plan) -> float:
    """Bits per predicted token of held-out rows; the masked ones are the same at each check.

    In float32 where the processor does not multiply bfloat16.
    """
    nats = []
    with torch.autocast("cpu", torch.bfloat16, enabled=native()):
        for number, ids in enumerate(rows.split(16)):
            if OBJECTIVES[name] == MASKED:
                shown, at = _masked(model, ids, plan, -1 - number)
                nats.append(masked_losses(name, model, ids, shown, at))
            else:
                nats.append(causal_losses(name, model, ids).flatten())
    return float(torch.cat(nats).mean()) / math.log(2)


def _resume(folder: Path, model: Any, optimizing: list[Any]) -> tuple[int, list[list[float]]]:
    state = folder / "state.json"
    if not state.is_file():
        return 0, []
    told = json.loads(state.read_text())
    tensors = load_file(folder / f"last-{told['step']}.safetensors")
    own = dict(model.named_parameters())
    names = {id(parameter): name for name, parameter in own.items()}
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
    for optimizer in optimizing:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                ending = f"|{names[id(parameter)]}"
                optimizer.state[parameter] = {
                    key.removesuffix(ending): tensor
                    for key, tensor in tensors.items()
                    if key.endswith(ending)
                }
    return told["step"], told["curve"]


def _save(
    folder: Path, model: Any, optimizing: list[Any], step: int, curve: list[list[float]]
) -> None:
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach().clone()
        for optimizer in optimizing:
            for key, tensor in optimizer.state.get(parameter, {}).items():
                tensors[f"{key}|{name}"] = tensor
    save_file(tensors, folder / f"last-{step}.safetensors")
    state = folder / "state.json"
    state.with_suffix(".new").write_text(json.dumps({"step": step, "curve": curve}))
    state.with_suffix(".new").replace(state)
    for old in folder.glob("last-*.safetensors"):
        if old.name != f"last-{step}.safetensors":
            old.unlink()
    with (folder / "curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CURVE)
        writer.writerows(
            [[step, tokens, *(f"{x:.5g}" for x in rest)] for step, tokens, *rest in curve]
        )


def _keep(folder: Path, model: Any, step: int) -> None:
    weights = {name: p.detach().half() for name, p in model.named_parameters()}
    save_file(weights, folder / f"step-{step}.safetensors")
