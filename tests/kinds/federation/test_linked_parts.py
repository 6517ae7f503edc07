from __future__ import annotations

import numpy as np

from fedprint.kinds.federation.stages.evaluate_linked import linked_parts

SENDERS = ["b", "a", "b", "a", "b", "a", "a", "c"]
ROUNDS = [0, 3, 1, 2, 2, 1, 0, 5]


def test_parts_are_of_one_sender_in_order_of_time() -> None:
    parts = linked_parts(SENDERS, ROUNDS, 2)
    assert [[(SENDERS[i], ROUNDS[i]) for i in part] for part in parts] == [
        [("a", 0), ("a", 1)],
        [("a", 2), ("a", 3)],
        [("b", 0), ("b", 1)],
    ]


def test_one_update_at_a_time_is_every_update() -> None:
    assert sorted(linked_parts(SENDERS, ROUNDS, 1)[:, 0].tolist()) == list(range(len(SENDERS)))


def test_where_most_devices_sent_fewer_nothing_is_asked() -> None:
    assert len(linked_parts(SENDERS, ROUNDS, 3)) == 2
    assert linked_parts(SENDERS, ROUNDS, 4).shape == (0, 4), "one of three devices sent four"
    assert len(linked_parts(["a"] * 9, np.arange(9).tolist(), 3)) == 0, "one device has no others to be taken for"
