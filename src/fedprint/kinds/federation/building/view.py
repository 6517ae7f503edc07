"""What the adversary has of a federation, and what it is asked: built here for every stage that attacks.

It opens observed/, what is public and the adversary's own users. It opens neither truth/ nor answers/, nor a victim's
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fedprint.attacks.view import AttackerView, ask_all
from fedprint.component import Component
from fedprint.data.prepared import load_meta, load_users
from fedprint.data.text_columns import CAPTION
from fedprint.federation.ledger import LEDGER, public_norms
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.clustering import with_clusters
from fedprint.lab.graph import Task
from fedprint.models.inputs import model_users
from fedprint.rng import seed_for
from fedprint.store.reader import UpdateStore
from fedprint.types import AdversaryName, Questions, User


def open_view(task: Task, adversary: AdversaryName) -> tuple[AttackerView, Questions]:
    """Return all that the adversary may know, and what it is asked."""
    store, meta = UpdateStore.open(task.at("observed")), load_meta(task.at("meta"))
    known, background = load_users(task.at("prior")), load_users(task.at("background"))
    norms = public_norms(task.at("public") / LEDGER)
    dtype = build.DTYPES[task.config.federation.dtype]
    prior = readable(known, dtype, task.config.model)
    view = AttackerView(
        store=store,
        prior_users=prior,
        background=readable(with_clusters(background, task.at("public")), dtype, task.config.model),
        model=build.build_model(task.config, meta, prior, build.federation_seed(task.seed)),
        training=task.config.federation.training_by_round(),
        rule=build.server_rule(task.config, task.config.federation.device_count(len(prior)), norms),
        chronological=task.prior == "chrono",
        by_album=task.prior == "photoset",
        defences=task.config.defences if adversary == "adaptive" else None,
        seed=seed_for(task.seed, "adversary"),
        labels={user.user_id: user.user_id for user in prior},
        device=task.device,
    )
    # Ascending ids: the order of the devices would reveal the senders.
    return view, ask_all(store, tuple(sorted(view.labels)))


def readable(users: Sequence[User], dtype: torch.dtype, model: Component) -> tuple[User, ...]:
    """Return the users as model input, with the captions that the adversary can read and no device trains on."""
    return tuple(
        replace(ready, examples={**ready.examples, CAPTION: user.examples[CAPTION]})
        if CAPTION in user.examples
        else ready
        for user, ready in zip(users, model_users(users, dtype, model=model), strict=True)
    )
