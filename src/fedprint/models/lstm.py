"""Recurrent text models (gradient-leaks, section 5.1: the next-word language model)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.data.dataset import IGNORED
from fedprint.models.base import FedModule
from fedprint.models.components import NextWordLstm
from fedprint.types import Examples


class Lstm(nn.Module):
    """One LSTM layer written with linear maps, so that ``torch.func.vmap`` runs it exactly and fast.

    Gate order and equations are those of :class:`torch.nn.LSTM` (input, forget, cell, output) with one bias.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, length, inputs) to the hidden states (b, length, hidden)."""
        drive = functional.linear(x, self.weight_ih, self.bias)  # one product for all steps: (b, length, 4 hidden)
        h = drive.new_zeros(x.shape[0], self.hidden)
        c = h
        states = []
        for step in drive.unbind(1):
            i, f, g, o = (step + functional.linear(h, self.weight_hh)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)


class LanguageModel(FedModule):
    """Next-word prediction: embedding, LSTM, fully connected output over the vocabulary."""

    def __init__(self, vocabulary: int, config: NextWordLstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.lstm = Lstm(config.embedding, config.hidden)
        self.head = nn.Linear(config.hidden, vocabulary)

    def scores(self, x: Tensor) -> Tensor:
        """Scores of the next token: (b, length, vocabulary)."""
        out: Tensor = self.head(self.lstm(self.embedding(x)))
        return out

    def per_example_loss(self, batch: Examples) -> Tensor:
        """Mean cross-entropy over a sentence's known next words: (b,)."""
        y = batch["y"]
        known = y != IGNORED
        losses = functional.cross_entropy(
            self.scores(batch["x"]).flatten(0, 1), y.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(y.shape).sum(1) / known.sum(1).clamp(min=1)

    def per_example_utility(self, batch: Examples) -> Tensor:
        """Top-5 hits per token (b, length); NaN where the target is padding or an unknown word."""
        y = batch["y"]
        top = self.scores(batch["x"]).topk(5, dim=-1).indices
        hits = (top == y.unsqueeze(-1)).any(-1).to(torch.float32)
        return hits.masked_fill(y == IGNORED, float("nan"))
