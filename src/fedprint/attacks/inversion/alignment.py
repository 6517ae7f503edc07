"""How similar an image's gradient is to a sent update: evidence that the image is in it, without a reconstruction.

Letters: q candidate images, v victims, P public images, d entries of a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.types import Params

CHUNK = 64
"""Images whose gradients are computed at a time."""


def alignment(
    victims: Victims, candidates: Labelled, knowledge: Knowledge = NAIVE, public: Labelled | None = None
) -> Tensor:
    """Return the cosines (q, v) of each candidate's gradient and each victim's descent, as :class:`Aligner` takes them.

    Several rounds give their mean.
    """
    return torch.stack(
        [_of_one_round(victims.one_round(r), candidates, knowledge, public) for r in range(victims.rounds)]
    ).mean(0)


class Aligner:
    """Compares descents from one model with gradients of labelled candidates at this model.

    Gradients at one model have much in common, above all within a class, and this hides the part of a single image.
    With ``public`` images the cosines are whitened by the second moment of these images' gradients (Fisher's linear
    discriminant). Its median eigenvalue plus the variance of known noise is a floor for directions without evidence.
    The public gradients (P, d) are kept in memory, and those of the candidates of a call.

    Where a mask is known, only entries that were sent count, for the whitening too. Where a secret head is known, the
    public head, which it does not change, has the same weight as all other layers together.
    """

    def __init__(self, victims: Victims, knowledge: Knowledge = NAIVE, public: Labelled | None = None) -> None:
        self._victims, self._masked = victims, knowledge.masked
        self._floor = victims.images * knowledge.sigma**2
        names = list(victims.params)
        heads = [name for name in names if name.startswith("head.")]
        split = knowledge.secret_head and 0 < len(heads) < len(names)
        self._parts = [heads, [name for name in names if name not in heads]] if split else [names]
        self._rows = None if public is None else self._gradients(public)
        whole = self._rows is not None and not self._masked
        self._metrics = [Whitened(rows, self._floor) for rows in self._rows or []] if whole else []
        # Sent entries are picked out of rows of columns, which lie in one piece.
        self._columns = None if self._rows is None or whole else [rows.mT.contiguous() for rows in self._rows]

    def __call__(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return the cosines (q, v) of descents (v, ...), float64 on the CPU."""
        gradients = self._gradients(candidates)
        cosines = [self._cosines(i, g, _flat(descents, self._parts[i])) for i, g in enumerate(gradients)]
        return torch.stack(cosines).mean(0).cpu()

    def of_own(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return the cosines (q, s) of each candidate with its own s descents, those of ``descents`` (q, s, ...)."""
        rows = {name: each.flatten(0, 1) for name, each in descents.items()}
        cosines = [
            self._cosines(i, g[:, None], _flat(rows, self._parts[i]).view(len(g), -1, g.shape[1]))[:, 0]
            for i, g in enumerate(self._gradients(candidates))
        ]
        return torch.stack(cosines).mean(0).cpu()

    def _cosines(self, part: int, a: Tensor, b: Tensor) -> Tensor:
        """Return the cosines (..., n, m) of a (..., n, d) and b (..., m, d) in one of the parts."""
        if self._metrics:
            return self._metrics[part].cosines(a, b)
        if not self._masked:
            return _plain(a, b)
        if b.dim() > 2:
            return torch.stack([self._cosines(part, *pair) for pair in zip(a, b, strict=True)])
        columns = []
        for sent in b:
            known = sent.nonzero()[:, 0]
            if not len(known):
                columns.append(a.new_zeros(len(a), 1))
            elif self._columns is None:
                columns.append(_plain(a[:, known], sent[None, known]))
            else:
                metric = Whitened(self._columns[part][known].mT, self._floor)
                columns.append(metric.cosines(a[:, known], sent[None, known]))
        return torch.cat(columns, 1)

    def _gradients(self, images: Labelled) -> list[Tensor]:
        """Return the gradient of each image: (n, d) for every part."""
        victims = self._victims
        of_each = vmap(simulation(victims.model, multi_label=victims.multi_label), in_dims=(None, 0, 0))
        like = next(iter(victims.params.values()))
        x, targets = images.x.to(like)[:, None], as_targets(victims, images.y, like)[:, None]
        chunks = []
        for some, labels in zip(torch.split(x, CHUNK), torch.split(targets, CHUNK), strict=True):
            gradients = of_each(victims.params, some, labels)
            chunks.append([_flat(gradients, part) for part in self._parts])
        return [torch.cat(part) for part in zip(*chunks, strict=True)]


def as_targets(victims: Victims, y: Tensor, like: Tensor) -> Tensor:
    """Return labels (..., ) as one-hot targets (..., C), multi-hot ones as they are."""
    if victims.multi_label:
        return y.to(like)
    return functional.one_hot(y.to(like.device), victims.classes).to(like)


def _of_one_round(victims: Victims, candidates: Labelled, knowledge: Knowledge, public: Labelled | None) -> Tensor:
    if victims.shared:
        return Aligner(victims, knowledge, public)(victims.descents, candidates)
    ones = (victims.of_one_model(victim) for victim in range(len(victims)))
    return torch.cat([Aligner(one, knowledge, public)(one.descents, candidates) for one in ones], 1)


class Whitened:
    """The inner product ``a^T S^-1 b`` up to a factor, with ``S = R^T R / P + floor`` of rows R (P, d) (Woodbury)."""

    def __init__(self, rows: Tensor, floor: float) -> None:
        self._rows = rows
        gram = rows @ rows.mT
        least = torch.linalg.eigvalsh(gram / len(rows)).median() + floor
        self._inverse = torch.linalg.inv(gram + len(rows) * least * torch.eye(len(rows)).to(gram))

    def cosines(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the cosines (..., n, m) of a (..., n, d) and b (..., m, d)."""
        of_a, of_b = a @ self._rows.mT, b @ self._rows.mT
        inner = a @ b.mT - of_a @ self._inverse @ of_b.mT
        squares = [(one.square().sum(-1) - ((of @ self._inverse) * of).sum(-1)) for one, of in ((a, of_a), (b, of_b))]
        return _normalised(inner, *squares)


def _plain(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosines (..., n, m) of a (..., n, d) and b (..., m, d)."""
    return _normalised(a @ b.mT, a.square().sum(-1), b.square().sum(-1))


def _normalised(inner: Tensor, of_a: Tensor, of_b: Tensor) -> Tensor:
    """Return inner products (..., n, m) over the lengths of both sides, from their squares (..., n) and (..., m)."""
    return inner / (of_a[..., :, None] * of_b[..., None, :]).clamp(min=1e-60).sqrt()


def _flat(gradients: Params, names: list[str]) -> Tensor:
    """Return tensors (n, ...) as rows (n, d) in float64, because small differences of large common parts matter."""
    return torch.cat([gradients[name].flatten(1) for name in names], 1).double()
