"""The networks: one width, one vocabulary, depth matched by the number of parameters.

Three are the trio; two more cross architecture and objective, so that what is due to one can be
told from what is due to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from mlem_core.representations.bidirectional import (
    BidirectionalMambaConfig,
    BidirectionalMambaModel,
)
from training.scan import quicken
from training.vocabulary import END, MASK, PAD, START

MASKED, CAUSAL = "masked", "causal"
# Kind of model -> what it is trained to do.
OBJECTIVES = {
    "mini-bert": MASKED,
    "mini-gpt2": CAUSAL,
    "mini-mamba": CAUSAL,
    "mini-bert-causal": CAUSAL,
    "mini-mamba-masked": MASKED,
}
NAMES = tuple(OBJECTIVES)
MASKED_REPLACED = 0.8, 0.1  # of the chosen tokens: masked, replaced at random; the rest stay


@dataclass(frozen=True)
class Shape:
    """The sizes of the networks. `mamba_layers` is what matches the parameters of `layers`; a
    bidirectional Mamba has half as many, of two mixers each."""

    vocabulary: int = 5120
    width: int = 128
    layers: int = 6
    mamba_layers: int = 11
    heads: int = 4
    states: int = 8
    longest: int = 128


def build(name: str, shape: Shape, seed: int) -> Any:
    """A freshly initialised network with its head, by kind."""
    import transformers as hf

    torch.manual_seed(seed)
    if name == "mini-bert":
        bert = hf.BertForMaskedLM(_bert(shape))
        return _with_waves(bert)
    if name == "mini-bert-causal":
        return _with_waves(hf.BertLMHeadModel(_bert(shape, is_decoder=True)))
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
                **_IDS,
            )
        )
    if name == "mini-mamba":
        return hf.MambaForCausalLM(hf.MambaConfig(**_mamba(shape, shape.mamba_layers)))
    sizes = _mamba(shape, -(-shape.mamba_layers // 2))
    sizes["intermediate_size"] = int(NARROW * shape.width)
    return MaskedMamba(BidirectionalMambaConfig(**sizes))


_IDS: dict[str, Any] = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
NARROW = 1.8125  # two mixers a layer, six layers: as many parameters as eleven of twice the width


class MaskedMamba(torch.nn.Module):
    """A bidirectional Mamba with the head of mini-mamba: its own embeddings."""

    def __init__(self, config: BidirectionalMambaConfig) -> None:
        super().__init__()
        self.config = config
        self.base_model = BidirectionalMambaModel(config)

    def get_output_embeddings(self) -> Any:
        """The embeddings that states are compared with."""
        return self.base_model.get_input_embeddings()


def _bert(shape: Shape, **more: Any) -> Any:
    import transformers as hf

    return hf.BertConfig(
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
        **_IDS,
        **more,
    )


def _with_waves(bert: Any) -> Any:
    with torch.no_grad():
        weight = bert.bert.embeddings.position_embeddings.weight
        weight.copy_(0.08 * waves(*weight.shape))
    return bert


def _mamba(shape: Shape, layers: int) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": layers,
        "state_size": shape.states,
        "time_step_rank": max(1, shape.width // 16),
        "tie_word_embeddings": True,
        **_IDS,
    }


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
    if "mamba" in name:
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


def head(name: str, model: Any, states: torch.Tensor) -> tuple[torch.Tensor, Any, Any]:
    """(states as the head compares them, its words (n_words, n_units), its bias or None)."""
    if "bert" in name:
        last = model.cls.predictions
        return last.transform(states), last.decoder.weight, last.decoder.bias
    return states, model.get_output_embeddings().weight, None


def causal_losses(name: str, model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Negative log likelihood (n_rows, n_tokens - 1), in nats, of each token but the first."""
    states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    nats = _nats(*head(name, model, states), ids[:, 1:])
    return nats.view(len(ids), -1)


def masked_losses(
    name: str, model: Any, ids: torch.Tensor, shown: torch.Tensor, at: Any
) -> torch.Tensor:
    """Negative log likelihood, in nats, of the tokens ids[at] of a text that is shown otherwise."""
    states = model.base_model(input_ids=shown).last_hidden_state[at]
    return _nats(*head(name, model, states), ids[at])


def _nats(states: Any, words: Any, bias: Any, targets: torch.Tensor) -> torch.Tensor:
    logits = F.linear(states, words, bias).float()
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")


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
