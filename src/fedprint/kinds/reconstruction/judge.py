"""Reconstructions from recorded updates beside the truth: rows, figures, a table; the only part that reads truth/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.attacks.inversion.recorded import Sender
from fedprint.attacks.inversion.victims import Labelled
from fedprint.data.examples import concat
from fedprint.data.prepared import load_users
from fedprint.evaluation.inversion import reconstruction as measure
from fedprint.evaluation.rows import Row, to_row
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.stages.evaluate import condition
from fedprint.kinds.inversion.results.candidates import rows_of_candidates
from fedprint.kinds.inversion.results.judge import CandidateScores
from fedprint.kinds.inversion.results.scene import Scene
from fedprint.kinds.reconstruction.settings import SCORES, Reconstructed, RecordedInversion, attacked
from fedprint.lab.graph import Task
from fedprint.models.inputs import model_users
from fedprint.reports.figures.reconstructions import Picture, draw_reconstructions
from fedprint.rng import torch_rng
from fedprint.store.index import read_truth
from fedprint.store.reader import UpdateStore
from fedprint.types import AdversaryName, Ints, Measurement

PARTICIPANTS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The truth about one device: its user and own images ``x`` (b, c, h, w) with labels ``y`` (b,) or (b, C)."""

    user: int
    x: Tensor
    y: Tensor


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Images to look for, and the device (q,) that holds each: an index of the attacked ones, -1 for a stranger's."""

    images: Labelled
    owner: Ints


def compare(
    task: Task, config: RecordedInversion, held: Ints, results: Mapping[AdversaryName, Mapping[str, Reconstructed]]
) -> tuple[list[Row], bytes]:
    """Return the rows of every adversary's results, by pseudonym, and a picture.

    ``held`` (q,) says which device holds each candidate image.
    """
    senders = attacked(task, config)
    truth, blind = truth_of(task, senders), mean_test_image(task)
    rows = [
        to_row(one)
        for adversary, each in results.items()
        for one in _measured(task, config, adversary, senders, truth, each, held, blind)
    ]
    shown = [
        Picture(
            images=sender.images,
            truth=known.x.numpy(),
            reconstructed={adversary: _in_order(each[sender.pseudonym], known) for adversary, each in results.items()},
        )
        for sender, known in zip(senders, truth, strict=True)
    ]
    return rows, draw_reconstructions(shown).png


def truth_of(task: Task, senders: Sequence[Sender]) -> list[Known]:
    """Return who sent what: the images that the device itself holds, without what a defence adds."""
    index = UpdateStore.open(task.at("observed"), verify=False).index
    table = read_truth(task.at("truth"))
    users = dict(zip(table["obs_id"], table["user_id"], strict=True))
    dtype = build.DTYPES[task.config.federation.dtype]
    examples = {u.user_id: u.examples for u in model_users(load_users(task.at("private")), dtype)}
    truth = []
    for sender in senders:
        user = int(users[index["obs_id"].iloc[sender.rows[0]]])
        truth.append(Known(user=user, x=examples[user]["x"].float(), y=examples[user]["y"]))
    return truth


def candidates_of(task: Task, truth: Sequence[Known], config: RecordedInversion) -> Candidates:
    """Return the attacked devices' own images and those of test users, who train nowhere, in random order."""
    test = concat([{"x": u.examples["x"], "y": u.examples["y"]} for u in _test_users(task)])
    rng = torch_rng(config.seed, "strangers")
    some = torch.randperm(len(test["y"]), generator=rng)[: config.strangers]
    x = torch.cat([*(known.x for known in truth), test["x"][some].float()])
    y = torch.cat([*(known.y for known in truth), test["y"][some]])
    owners = (np.full(len(known.y), index) for index, known in enumerate(truth))
    owner = np.concatenate([*owners, np.full(len(some), -1)])
    order = torch.randperm(len(owner), generator=rng)
    return Candidates(images=Labelled(x=x[order], y=y[order]), owner=owner[order.numpy()])


def mean_test_image(task: Task) -> Tensor:
    """Return the answer of an adversary that sees no update: (c, h, w)."""
    return torch.cat([user.examples["x"] for user in _test_users(task)]).float().mean(0)


def _test_users(task: Task) -> Sequence[Any]:
    dtype = build.DTYPES[task.config.federation.dtype]
    return model_users(load_users(task.at("test")), dtype)


def _measured(
    task: Task,
    config: RecordedInversion,
    adversary: AdversaryName,
    senders: Sequence[Sender],
    truth: Sequence[Known],
    results: Mapping[str, Reconstructed],
    held: Ints,
    blind: Tensor,
) -> Iterator[Measurement]:
    each = [_of_device(results[s.pseudonym], known, blind) for s, known in zip(senders, truth, strict=True)]
    values = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    users = np.repeat([known.user for known in truth], [len(known.y) for known in truth])
    keys = {
        **condition(task, adversary),
        "attack": config.attack.name,
        "attack_batch": round(float(np.mean([sender.images for sender in senders])), 2),
        "updates": len(senders),
        "rounds": config.rounds,
        "matching": "assignment",
        "config_hash": config.digest(),
    }
    scene = Scene(keys=keys, victims=users, seed=config.seed)
    raw, cut = scene.with_keys(pixels="raw"), scene.with_keys(pixels="clipped")
    yield raw.mean("reconstruction_rmse", values["raw-error"], values["blind-error"], None)
    yield cut.mean("reconstruction_rmse", values["error"], values["blind-error"], (0.0, float(values["top"].max())))
    for threshold in measure.SUCCESS:
        success = cut.with_keys(threshold=threshold)
        yield success.mean("reconstruction_success", values["error"] < threshold, values["blind-error"] < threshold)
    yield cut.mean("psnr", values["psnr"], values["blind-psnr"], (0.0, 100.0))
    yield cut.mean("ssim", values["ssim"], values["blind-ssim"], (-1.0, 1.0))
    if all(len(results[s.pseudonym].labels) for s in senders):
        yield from _labels(scene, task, senders, truth, results)
    answers = [results[sender.pseudonym] for sender in senders]
    alignment, loss = (np.stack([getattr(one, name).numpy() for one in answers], 1) for name in SCORES)
    none = np.zeros((0, len(senders)))
    candidates = CandidateScores(scores=alignment, loss=loss, owner=held, asked=none, lira=none)
    here = Scene(keys={**keys, "matching": None}, victims=np.arange(len(senders)), seed=config.seed)
    yield from rows_of_candidates(here, candidates, PARTICIPANTS)


def _of_device(result: Reconstructed, known: Known, blind: Tensor) -> dict[str, NDArray[Any]]:
    """Return one number per own image of a device, the best assigned reconstruction beside it, and of a blind guess."""
    x, images, raw = known.x.numpy()[None], result.images.numpy()[None], result.raw.numpy()[None]
    paired = measure.rearranged(images, measure.assignment(images, x))
    uncut = measure.rearranged(raw, measure.assignment(raw, x))
    guess = np.broadcast_to(blind.numpy(), x.shape)
    return {
        "raw-error": measure.relative_errors(uncut, x)[0],
        "top": measure.largest_errors(x)[0],
        **{name: of(paired, x)[0] for name, of in _QUALITY.items()},
        **{f"blind-{name}": of(guess, x)[0] for name, of in _QUALITY.items()},
    }


_QUALITY = {"error": measure.relative_errors, "psnr": measure.psnr, "ssim": measure.ssim}


def _labels(
    scene: Scene, task: Task, senders: Sequence[Sender], truth: Sequence[Known], results: Mapping[str, Reconstructed]
) -> Iterator[Measurement]:
    classes = int(UpdateStore.open(task.at("observed"), verify=False).layout.shapes["head.bias"][0])
    hits, chance = [], []
    for sender, known in zip(senders, truth, strict=True):
        labels, true = results[sender.pseudonym].labels.numpy()[None], known.y.numpy()[None]
        hits.append(measure.label_hits(labels, true)[0])
        chance.append(measure.chance_label_hits(true, classes, labels.shape[1])[0])
    yield scene.with_keys(labels="gradient").mean("label_accuracy", np.concatenate(hits), np.concatenate(chance))


def _in_order(result: Reconstructed, known: Known) -> NDArray[Any]:
    images, x = result.images.numpy()[None], known.x.numpy()[None]
    ordered: NDArray[Any] = measure.rearranged(images, measure.assignment(images, x))[0]
    return ordered
