"""The three networks: one width, one vocabulary, depth matched by the number of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from training.scan import quicken
from training.vocabulary import END, MASK, PAD, START

NAMES = ("mini-bert", "mini-gpt2", "mini-mamba")
MASKED_REPLACED = 0.8, 0.1  # of the chosen tokens: masked, replaced at random; the rest stay


@dataclass(frozen=True)
class Shape:
    """The sizes of the networks. `mamba_layers` is what matches the parameters of `layers`."""

    vocabulary: int = 4096
    width: int = 128
    layers: int = 6
    mamba_layers: int = 11
    heads: int = 4
    states: int = 8
    longest: int = 128


def build(name: str, shape: Shape, seed: int) -> Any:
    """A freshly initialised network of transformers, by name."""
    import transformers as hf

    torch.manual_seed(seed)
    ids: dict[str, Any] = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
    if name == "mini-bert":
        bert = hf.BertForMaskedLM(
            hf.BertConfig(
                vocab_size=shape.vocabulary,
                hidden_size=shape.width,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                intermediate_size=4 * shape.width,
                max_position_embeddings=shape.longest,
                type_vocab_size=1,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                initializer_range=0.06,
                tie_word_embeddings=True,
                **ids,
            )
        )
        with torch.no_grad():
            weight = bert.bert.embeddings.position_embeddings.weight
            weight.copy_(0.08 * waves(*weight.shape))
        return bert
    if name == "mini-gpt2":
        return hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=shape.vocabulary,
                n_embd=shape.width,
                n_layer=shape.layers,
                n_head=shape.heads,
                n_positions=shape.longest,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                tie_word_embeddings=True,
                **ids,
            )
        )
    return hf.MambaForCausalLM(
        hf.MambaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.mamba_layers,
            state_size=shape.states,
            time_step_rank=max(1, shape.width // 16),
            tie_word_embeddings=True,
            **ids,
        )
    )


def waves(n: int, width: int) -> torch.Tensor:
    """Sines and cosines of positions (n, width), wavelengths from 2 pi to 2 pi n.

    mini-bert's position embeddings begin like this, and are then learned. From random ones it
    takes much longer to find out which positions are neighbours, and stays at unigrams meanwhile.
    """
    frequencies = n ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(n)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def for_training(name: str, model: Any) -> Any:
    """The model as a CPU trains it fastest: a Mamba with the scan of `scan.py`, attention in plain
    matrix products, whose backward pass takes a fraction of the fused one's in rows as short."""
    if name == "mini-mamba":
        return quicken(model)
    model.set_attn_implementation("eager")
    return model


def embeddings(model: Any) -> int:
    """The number of parameters in the word and position embeddings."""
    return sum(
        module.weight.numel()
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding)
    )


def causal_losses(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Negative log likelihood (n_rows, n_tokens - 1), in nats, of each token but the first."""
    states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    logits = F.linear(states, model.get_output_embeddings().weight).float()
    # Over the last axis: over a transposed one this is half of the time of a step of mini-gpt2.
    nats = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return nats.view(len(ids), -1)


def masked_losses(model: Any, ids: torch.Tensor, shown: torch.Tensor, at: Any) -> torch.Tensor:
    """Negative log likelihood, in nats, of the tokens ids[at] of a text that is shown otherwise."""
    states = model.bert(input_ids=shown).last_hidden_state[at]
    return F.cross_entropy(model.cls(states).float(), ids[at], reduction="none")


def mask(
    ids: torch.Tensor, share: float, vocabulary: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what is shown, which tokens are asked for), both (n_rows, n_tokens)."""
    draws = torch.rand(ids.shape, generator=generator)
    asked = (draws < share) & (ids != START) & (ids != END)
    fate = torch.rand(ids.shape, generator=generator)
    masked, replaced = MASKED_REPLACED
    other = torch.randint(END + 2, vocabulary, ids.shape, generator=generator)
    shown = torch.where(asked & (fate < masked), MASK, ids)
    return torch.where(asked & (fate >= masked) & (fate < masked + replaced), other, shown), asked
