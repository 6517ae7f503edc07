"""The contract of kinds of experiment: :class:`fedprint.kinds.base.Kind`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedprint.errors import FedprintError
from fedprint.kinds.base import Request
from fedprint.kinds.registry import kind_of, kinds
from fedprint.lab.keys import PACKAGE


class KindContract:
    """A kind reads its own files; ``values`` are those of one, in the project ``root``."""

    kind: Any
    values: Mapping[str, Any]
    root: Path = Path()

    def request(self, **more: Any) -> Request:
        """Return the request for the file, with ``more`` settings."""
        path = self.root / "configs" / "experiments" / "contract.yaml"
        return Request(root=self.root, path=path, values={**self.values, **more}, name="contract")

    def test_it_is_registered_under_a_mark_of_its_own(self) -> None:
        """The mark of a file says of which kind it is."""
        assert type(kind_of(self.values)) is type(self.kind)
        assert [kind.name for kind in kinds()].count(self.kind.name) == 1

    def test_the_code_that_it_names_exists(self) -> None:
        """Fingerprints of published experiments read it."""
        assert all((PACKAGE / path).exists() for path in self.kind.code)

    def test_a_file_becomes_a_configuration(self) -> None:
        """It is named as asked, equal files have equal digests, and its text is YAML."""
        config, again = (self.kind.load(self.request()) for _ in range(2))
        assert config.name == "contract" and config.fast is False
        assert config.digest() == again.digest()
        assert isinstance(yaml.safe_load(config.text()), dict)

    def test_an_unknown_key_is_refused_in_one_line(self) -> None:
        """Users mend their files by this line."""
        said = None
        try:
            self.kind.load(self.request(**{"no-such-key": 1}))
        except FedprintError as error:
            said = str(error)
        assert said is not None, "it accepts a key that it does not have"
        assert "\n" not in said and "no-such-key" in said

    def test_jobs_have_labels_of_their_own(self) -> None:
        """Progress and failures name jobs by them; two jobs with one label would be one."""
        labels = [job.label for job in self.kind.jobs(self.kind.load(self.request()))]
        assert len(set(labels)) == len(labels)

    def test_it_says_whether_its_data_may_leave(self) -> None:
        """A report with other people's data stays on this machine."""
        assert isinstance(self.kind.shareable(self.kind.load(self.request())), bool)
