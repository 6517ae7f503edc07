"""FedAvg in one file and in plain PyTorch, to read first: what fedprint.federation does, without its speed and store.

Twelve people with photo albums each own two devices: one with their private photos and one, the adversary's, with
photos that the adversary has of them. Every round some devices train the global model on their photos and send the
difference. The server averages the differences. It knows no names, but the last line prints how many updates it can
assign to their users.

Run: ``python examples/fedavg_by_hand.py`` (seconds). A test holds fedprint.federation to :func:`fedavg`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from fedprint.data.sources.albums import Albums
from fedprint.data.splits import split_users
from fedprint.federation.client import batch_schedule
from fedprint.models.base import initialise
from fedprint.models.components import SmallCnn
from fedprint.models.networks import build_network
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Examples, LocalTraining, User

Weights = dict[str, Tensor]


def local_update(model: nn.Module, received: Weights, data: Examples, training: LocalTraining, seed: int) -> Weights:
    """Train the model on one device, starting from the weights received, and return what it learnt: w - w_t."""
    model.load_state_dict(received)
    sgd = torch.optim.SGD(model.parameters(), lr=training.lr)
    for batch in batch_schedule(len(data["y"]), training, seed):  # which examples each step sees
        sgd.zero_grad()
        model({"x": data["x"][batch], "y": data["y"][batch]}).mean().backward()
        sgd.step()
    return {name: (w - received[name]).clone() for name, w in model.state_dict().items()}


def draw_cohort(devices: Mapping[str, Examples], size: int, seed: int, t: int) -> list[str]:
    """Draw the devices of round t without replacement."""
    names = sorted(devices)
    order = torch.randperm(len(names), generator=torch_rng(seed, "cohort", t)).tolist()
    return [names[i] for i in order[:size]]


def fedavg(
    model: nn.Module, devices: Mapping[str, Examples], rounds: int, cohort: int, training: LocalTraining, seed: int
) -> Iterator[tuple[dict[str, Weights], Weights]]:
    """Yield each round's updates by device and the global weights after it."""
    weights = {name: w.clone() for name, w in model.state_dict().items()}
    for t in range(rounds):
        chosen = draw_cohort(devices, cohort, seed, t)
        updates = {
            name: local_update(model, weights, devices[name], training, seed_for(seed, "client", t, name))
            for name in chosen
        }
        # w_{t+1} = w_t + sum_k (n_k / n) (w_k - w_t): a device counts as much as it has examples
        sizes = {name: len(devices[name]["y"]) for name in chosen}
        n = sum(sizes.values())
        weights = {key: w + sum(sizes[k] / n * updates[k][key] for k in chosen) for key, w in weights.items()}
        yield updates, weights


def photos(user: User) -> Examples:
    """Return a user's photos with pixels in [0, 1]."""
    return {"x": user.examples["x"].float() / 255, "y": user.examples["y"]}


def cosine(a: Weights, b: Weights) -> float:
    """Return how alike two updates are, each read as one long vector."""
    x, y = (torch.cat([tensor.flatten() for tensor in update.values()]) for update in (a, b))
    return float(nn.functional.cosine_similarity(x, y, dim=0))


def albums() -> tuple[dict[str, Examples], dict[str, Examples], Examples, nn.Module]:
    """Return the devices with private photos, the adversary's devices, test photos, and the untrained model."""
    dataset = Albums(users=12, images=60, bias=1.0, background_users=0).load(None, seed=0)
    split = split_users(dataset.users, seed=0)
    private = {f"user-{user.user_id}-anonymous": photos(user) for user in split.private}
    prior = {f"user-{user.user_id}-prior": photos(user) for user in split.prior}
    test = {c: torch.cat([photos(user)[c] for user in split.test]) for c in ("x", "y")}
    cnn = SmallCnn(channels=(8, 16), hidden=32, centred=True)
    model = build_network(cnn, (3, 32, 32), len(dataset.class_names), True)
    initialise(model, torch_rng(0, "model"), model.initial_gain)
    return private, prior, test, model


def main() -> None:
    """Train, then compare every anonymous update with what the adversary's devices sent in the same round."""
    torch.set_num_threads(1)
    private, prior, test, model = albums()
    training = LocalTraining(epochs=1, batch_size=8, lr=0.3)

    rounds, recognised = 5, 0
    for t, (sent, weights) in enumerate(fedavg(model, {**private, **prior}, rounds, 24, training, seed=0)):
        model.load_state_dict(weights)
        with torch.no_grad():
            print(f"round {t}: test loss {float(model(test).mean()):.4f}")
        mean = {key: sum(update[key] for update in sent.values()) / len(sent) for key in weights}
        personal = {k: {key: u - mean[key] for key, u in update.items()} for k, update in sent.items()}
        for name in private:
            guess = max(prior, key=lambda other: cosine(personal[name], personal[other]))
            recognised += guess.split("-")[1] == name.split("-")[1]
    print(f"{recognised} of {rounds * len(private)} anonymous updates recognised; guessing would get {rounds}")


if __name__ == "__main__":
    main()
