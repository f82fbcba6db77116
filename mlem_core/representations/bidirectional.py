"""A bidirectional Mamba: each block reads the text once from the left and once from the right.

transformers has no such class, so this one is ours, from transformers' own mixers. It is the
network of `mini-mamba-masked`: the architecture of `mini-mamba` with the objective of `mini-bert`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, MambaConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mamba.modeling_mamba import MambaMixer, MambaPreTrainedModel, MambaRMSNorm

KIND = "bidirectional_mamba"


class BidirectionalMambaConfig(MambaConfig):
    """Mamba's configuration under a name of its own, with mixers of any width."""

    model_type = KIND

    def __post_init__(self, **kwargs: Any) -> None:
        width = kwargs.pop("intermediate_size", None)
        super().__post_init__(**kwargs)
        if width is not None:
            self.intermediate_size = int(width)


class Block(nn.Module):
    """x + left(norm(x)) + right(norm(x)), the latter on the reversed text."""

    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        self.norm = MambaRMSNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.left = MambaMixer(config, layer_idx=number)
        self.right = MambaMixer(config, layer_idx=number)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(n_rows, n_tokens, n_units) to the same."""
        normed = self.norm(hidden_states)
        mixed: torch.Tensor = self.left(normed) + self.right(normed.flip(1)).flip(1)
        return hidden_states + mixed


class BidirectionalMambaModel(MambaPreTrainedModel):
    """The network without a head: hidden states of the embeddings and of each block."""

    config_class = BidirectionalMambaConfig
    base_model_prefix = "model"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.norm_f = MambaRMSNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embeddings of the tokens."""
        return self.embeddings

    def set_input_embeddings(self, value: Any) -> None:
        """Replace the embeddings of the tokens."""
        self.embeddings = value

    def forward(
        self, input_ids: torch.Tensor, output_hidden_states: bool = False, **_: Any
    ) -> BaseModelOutput:
        """Hidden states of input_ids (n_rows, n_tokens); the last has passed the final norm."""
        states = [self.embeddings(input_ids)]
        for layer in self.layers:
            states.append(layer(states[-1]))
        states[-1] = self.norm_f(states[-1])
        return BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )


AutoConfig.register(KIND, BidirectionalMambaConfig)
AutoModel.register(BidirectionalMambaConfig, BidirectionalMambaModel)
