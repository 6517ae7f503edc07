"""The attacks on observed gradients: images and labels, and the sender of a given image (papers.md 4.4).

``reconstruct`` reads observed/, and public/ when the adversary knows the mechanism; ``seek`` reads these and the
candidate images; ``trace`` reads the reconstructions and the images to be traced. None has a path to the truth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedprint.attacks.inversion.adaptive import reconstruct as adapted
from fedprint.attacks.inversion.closed_form import ClosedForm
from fedprint.attacks.inversion.labels import labels_from
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.membership import Beliefs, Membership
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.shadows import Client, behind, plain, with_secret_head
from fedprint.attacks.inversion.simulate import LocalSteps, local_batches
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.defences.on_update import Laplace, Noise, TopK
from fedprint.defences.secret_head import SecretHead, secret_head
from fedprint.defences.strength import single
from fedprint.kinds.inversion.config import Inversion, LocalSgd, Mechanic, Network
from fedprint.kinds.inversion.victims import GRADIENTS, IMAGES, MECHANISM, SETTING
from fedprint.models.networks import build_network
from fedprint.rng import seed_for
from fedprint.types import UpdateDefence

RECONSTRUCTED, SCORES, TRACED = "reconstructed.safetensors", "scores.safetensors", "traced.safetensors"

_NETWORK: TypeAdapter[Network] = TypeAdapter(Network)
_MECHANICS: TypeAdapter[tuple[Mechanic, ...]] = TypeAdapter(tuple[Mechanic, ...])


def reconstruct(
    attack: Inversion, observed: Path, public: Path | None, out: Path, seed: int, device: str = "cpu"
) -> None:
    """Write the reconstruction: images (v, b, c, h, w), cut to [0, 1] and raw, labels (v, b), the course of the search.

    ``public`` is the folder of the mechanism; None is the naive adversary, who does not know it. It searches on a
    ``device`` (cpu, cuda): the last digits of a GPU differ from those of the CPU.
    """
    victims = observed_victims(observed)
    knowledge = Knowledge() if public is None else knowledge_of(read_mechanism(public))
    if isinstance(attack, ClosedForm):
        tensors = _closed_form(attack, victims, knowledge)
    else:
        tensors = _matched(attack, victims.to(device), knowledge, seed)
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, out / RECONSTRUCTED)


def seek(
    observed: Path, public: Path | None, candidates: Path, shadows: int, out: Path, seed: int, device: str = "cpu"
) -> None:
    """Write ``scores`` (q, v): how likely each candidate image is in each gradient, by its own gradient (alignment.py).

    And ``loss`` (q, v), by its own loss. The v gradients are the first of those that were observed. The adversary has
    the candidates with their labels, and other images of the same kind; ``public`` as above. Each gradient has k
    candidates with which shadow clients are simulated: their likelihood ratios are ``lira`` (k, v)
    (membership.py).
    """
    held = load_file(candidates / IMAGES)
    victims = observed_victims(observed).first(held["asked"].shape[1]).to(device)
    mechanics = () if public is None else read_mechanism(public)
    images, others = Labelled(x=held["x"], y=held["y"]), Labelled(x=held["public_x"], y=held["public_y"])
    client = client_of(victims, mechanics) if len(held["asked"]) else None
    beliefs = Beliefs(public=others, knowledge=knowledge_of(mechanics), client=client)
    scores = {
        "scores": Membership(score="alignment").run(victims, images, beliefs, seed=seed),
        "loss": Membership(score="loss").run(victims, images, beliefs, seed=seed),
    }
    ratios = [
        Membership(shadows=shadows).run(victims.of_one_model(v), images[asked], beliefs, seed=seed_for(seed, "lira", v))
        for v, asked in enumerate(held["asked"].T)
        if len(asked)
    ]
    scores["lira"] = torch.cat(ratios, 1) if ratios else held["asked"].double()
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in scores.items()}, out / SCORES)


def trace(reconstructed: Path, queries: Path, out: Path) -> None:
    """Write for each query image (q, c, h, w) the index of the nearest reconstruction (q,), among all victims'."""
    images, wanted = load_file(reconstructed / RECONSTRUCTED)["images"].flatten(0, 1), load_file(queries / IMAGES)["x"]
    out.mkdir(parents=True, exist_ok=True)
    save_file({"nearest": nearest(wanted, images)}, out / TRACED)


def nearest(queries: Tensor, images: Tensor) -> Tensor:
    """Return for each query (q, ...) the image (r, ...) with the smallest mean squared difference: (q,)."""
    return torch.cdist(queries.flatten(1).double(), images.flatten(1).double()).argmin(1)


def observed_victims(observed: Path) -> Victims:
    """Return the victims as the server sees them. It takes the order of the images for that of local batches."""
    setting = json.loads((observed / SETTING).read_text(encoding="utf-8"))
    tensors = load_file(observed / GRADIENTS)
    channels, height, width = setting["shape"]
    shape = (channels, height, width)
    return Victims(
        model=build_network(_NETWORK.validate_python(setting["network"]), shape, setting["classes"], False),
        params=_part(tensors, "params."),
        descents=_part(tensors, "sent."),
        shape=shape,
        classes=setting["classes"],
        images=setting["images"],
        shared=False,
        steps=_steps(setting["local"], setting["images"]),
    )


def _steps(settings: Mapping[str, Any] | None, images: int) -> LocalSteps | None:
    if settings is None:
        return None
    local = LocalSgd.model_validate(settings)
    batches = local_batches(images, local.steps, local.batch_size, lambda _: range(images))
    return LocalSteps(batches=batches, lr=local.lr)


def read_mechanism(public: Path) -> tuple[Mechanic, ...]:
    """Return the published settings of the mechanism."""
    return _MECHANICS.validate_json((public / MECHANISM).read_bytes())


def knowledge_of(defences: Sequence[Mechanic]) -> Knowledge:
    """Return the knowledge in the mechanism's settings: the size of the noise, missing entries, a second head."""
    noise = [single(defence.sigma) for defence in defences if isinstance(defence, Noise | Laplace)]
    masked = any(isinstance(defence, TopK) and single(defence.share) < 1 for defence in defences)
    secret = any(isinstance(defence, SecretHead) for defence in defences)
    return Knowledge(sigma=math.hypot(*noise), masked=masked, secret_head=secret)


def client_of(victims: Victims, defences: Sequence[Mechanic]) -> Client:
    """Return the client that an adversary simulates who knows the settings of ``defences``; without any a plain one."""
    secret = secret_head(defences)
    client = plain(victims)
    if secret is not None:
        client = with_secret_head(
            victims, bits=secret.bits, alpha1=secret.alpha1, alpha2=single(secret.alpha2), margin=secret.margin
        )
    for defence in defences:
        if isinstance(defence, UpdateDefence):
            client = behind(client, defence.on_device)
    return client


def _matched(attack: GradientMatching, victims: Victims, knowledge: Knowledge, seed: int) -> dict[str, Tensor]:
    result = adapted(attack.model_copy(update={"keep_images": True}), victims, knowledge, seed=seed)
    return {
        "images": result.images.float(),
        "raw": result.raw.float(),
        "labels": result.targets.argmax(-1),
        "evaluations": result.evaluations,
        "at": torch.tensor(result.trajectory.evaluations),
        "values": result.trajectory.values,
        "course": result.trajectory.images.float(),
    }


def _closed_form(attack: ClosedForm, victims: Victims, knowledge: Knowledge) -> dict[str, Tensor]:
    """Solve for the image, as the attack says and, where noise or a mask is known, in more ways (closed_form.py)."""
    raw = attack.run(victims, knowledge).float()
    labels = labels_from("row-sum", victims.descents, victims.images)  # of one image each: row sums are enough
    return {"images": raw.clamp(0, 1), "raw": raw, "labels": labels}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
