"""Recurrent text models (gradient-leaks, section 5.1: the next-word language model and the star regressor)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.data.dataset import IGNORED, PAD
from fedprint.models.base import FedModule
from fedprint.models.components import NextWordLstm, StarLstm
from fedprint.models.kernels.next_word import LinearCrossEntropy
from fedprint.types import Examples


class Lstm(nn.Module):
    """One LSTM layer: gate order and equations are those of :class:`torch.nn.LSTM` (input, forget, cell, output).

    It has one bias, and the constant ``forget_bias`` is added to that of the forget gate. torch's kernel for the whole
    sequence is two to three times faster on a CPU, but ``torch.func.vmap`` has only a slow fallback for it. A model
    made for vmap (:meth:`fedprint.models.base.FedModule.for_vmap`) loops over linear maps instead, which vmap runs
    fast.
    """

    for_vmap = False

    def __init__(self, inputs: int, hidden: int, forget_bias: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.forget_bias = forget_bias
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, length, inputs) to the hidden states (b, length, hidden)."""
        return self._stepwise(x) if self.for_vmap or _lacks_fused_kernel(x) else self._fused(x)

    def _fused(self, x: Tensor) -> Tensor:
        zeros, bias = x.new_zeros(1, x.shape[0], self.hidden), self._shifted_bias()
        weights = [self.weight_ih, self.weight_hh, bias, torch.zeros_like(bias)]
        states: Tensor = torch.lstm(
            x,
            (zeros, zeros),
            weights,
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=True,
        )[0]
        return states

    def _stepwise(self, x: Tensor) -> Tensor:
        drive = functional.linear(
            x, self.weight_ih, self._shifted_bias()
        )  # one product for all steps: (b, length, 4 hidden)
        h = drive.new_zeros(x.shape[0], self.hidden)
        c = h
        states = []
        for step in drive.unbind(1):
            i, f, g, o = (step + functional.linear(h, self.weight_hh)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)

    def _shifted_bias(self) -> Tensor:
        if not self.forget_bias:
            return self.bias
        shift = self.bias.new_full((self.hidden,), self.forget_bias)
        return self.bias + functional.pad(shift, (self.hidden, 2 * self.hidden))


def _lacks_fused_kernel(x: Tensor) -> bool:
    """Whether products are rounded to bfloat16 on a processor without AVX-512: oneDNN has no fused LSTM for it."""
    bf16 = x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return bf16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


class LanguageModel(FedModule):
    """Next-word prediction: embedding, LSTM, fully connected output over the vocabulary."""

    def __init__(self, vocabulary: int, config: NextWordLstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.lstm = Lstm(config.embedding, config.hidden)
        self.head = nn.Linear(config.hidden, vocabulary)

    def features(self, x: Tensor) -> Tensor:
        """Mean LSTM state (b, hidden) over the tokens of sentences (b, length) that are not padding."""
        real = (x != PAD).unsqueeze(-1)
        mean: Tensor = (self.lstm(self.embedding(x)) * real).sum(1) / real.sum(1).clamp(min=1)
        return mean

    def compact(self, examples: Examples) -> tuple[Examples, dict[str, Tensor]]:
        """Keep the words that the examples have."""
        return words_read(examples)

    def scores(self, x: Tensor) -> Tensor:
        """Scores of the next token: (b, length, vocabulary)."""
        out: Tensor = self.head(self.lstm(self.embedding(x)))
        return out

    def per_example_loss(self, batch: Examples) -> Tensor:
        """Mean cross-entropy over a sentence's known next words: (b,)."""
        y = batch["y"]
        known = y != IGNORED
        # Shapes must not depend on values under vmap; LinearCrossEntropy does not know bfloat16.
        if self.lstm.for_vmap or torch.is_autocast_enabled(y.device.type):
            losses = functional.cross_entropy(
                self.scores(batch["x"]).flatten(0, 1), y.flatten(), reduction="none", ignore_index=IGNORED
            ).view(y.shape)
        else:
            # Scores of the whole vocabulary take most of the time: compute them only where the target is known.
            states = self.lstm(self.embedding(batch["x"]))
            of_known: Tensor = LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
                states[known], self.head.weight, self.head.bias, y[known]
            )
            losses = states.new_zeros(y.shape).masked_scatter(known, of_known)
        return losses.sum(1) / known.sum(1).clamp(min=1)

    def per_example_utility(self, batch: Examples) -> Tensor:
        """Top-5 hits per token (b, length); NaN where the target is padding or an unknown word."""
        y = batch["y"]
        top = self.scores(batch["x"]).topk(5, dim=-1).indices
        hits = (top == y.unsqueeze(-1)).any(-1).to(torch.float32)
        return hits.masked_fill(y == IGNORED, float("nan"))


def words_read(examples: Examples) -> tuple[Examples, dict[str, Tensor]]:
    """Return the examples with words renumbered to the rows (m,) of the embedding that they read, and these rows.

    Padding keeps its number. Only rows that are read have a gradient, so training may leave out the others.
    """
    rows = torch.unique(torch.cat([examples["x"].new_tensor([PAD]), examples["x"].flatten()]))
    return {**examples, "x": torch.searchsorted(rows, examples["x"])}, {"embedding.weight": rows}


LOSSES = {"absolute": functional.l1_loss, "squared": functional.mse_loss, "huber": functional.smooth_l1_loss}


class StarRegressor(FedModule):
    """A text's rating: embedding, LSTM, and a linear map of the state after the last token that is not padding."""

    def __init__(self, vocabulary: int, config: StarLstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.lstm = Lstm(config.embedding, config.hidden, config.forget_bias)
        self.head = nn.Linear(config.hidden, 1)
        self.centre = config.centre
        self.loss = config.loss

    def features(self, x: Tensor) -> Tensor:
        """LSTM state (b, hidden) after the last token of texts (b, length) that are padded at the end."""
        real = (x != PAD).sum(1).clamp(min=1)
        last = torch.arange(1, x.shape[1] + 1, device=x.device) == real.unsqueeze(1)
        # A product with the mask, not an index: vmap runs it as one matrix product, and its gradient needs no scatter.
        state: Tensor = (self.lstm(self.embedding(x)) * last.unsqueeze(-1)).sum(1)
        return state

    def compact(self, examples: Examples) -> tuple[Examples, dict[str, Tensor]]:
        """Keep the words that the examples have."""
        return words_read(examples)

    def scores(self, x: Tensor) -> Tensor:
        """Predicted ratings (b,) of texts (b, length)."""
        out: Tensor = self.centre + self.head(self.features(x)).squeeze(-1)
        return out

    def per_example_loss(self, batch: Examples) -> Tensor:
        """Absolute, squared or Huber loss in stars: (b,)."""
        return LOSSES[self.loss](self.scores(batch["x"]), batch["y"], reduction="none")

    def per_example_utility(self, batch: Examples) -> Tensor:
        """The predicted ratings: (b,)."""
        return self.scores(batch["x"])
