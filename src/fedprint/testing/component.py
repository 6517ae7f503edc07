"""What every component promises, whatever it does.

A contract is a class of tests for pytest. A plug-in's own tests inherit from it and set ``component``; the names of
the classes begin with ``Test`` only there, so that nothing is collected by importing them.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from fedprint.component import Component
from fedprint.plugins import names_of


class ComponentContract:
    """A component is its own configuration; ``component`` is the one under test."""

    component: Any

    def test_it_is_a_component_with_a_literal_name(self) -> None:
        """An experiment names it; the entry point's class has a default name."""
        assert isinstance(self.component, Component)
        assert self.component.model_dump()["name"] in names_of(type(self.component))

    def test_its_json_is_itself(self) -> None:
        """Stages in other processes get it as JSON."""
        again = type(self.component).model_validate(self.component.model_dump(mode="json"))
        assert again == self.component

    def test_an_unknown_setting_is_refused(self) -> None:
        """A misspelt key must not be ignored."""
        values = {**self.component.model_dump(mode="json"), "no-such-setting": 1}
        try:
            type(self.component).model_validate(values)
        except ValidationError:
            return
        raise AssertionError("it accepts a setting that it does not have")

    def test_the_files_that_it_reads_are_named(self) -> None:
        """Cache keys hold the contents of files only if ``reads`` names them."""
        assert all(isinstance(path, str) and path for path in self.component.reads)
