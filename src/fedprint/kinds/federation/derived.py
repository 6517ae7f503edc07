"""Experiments that others build on: a plane, a study or an audit takes one from its file and changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from fedprint.kinds.base import Source
from fedprint.kinds.config_files import apply_assignments, merge, one_line, read_yaml
from fedprint.kinds.federation.config import Experiment, ReportConfig, all_differ, check_experiment, resolved_values
from fedprint.kinds.jobs import own_values, title_of
from fedprint.kinds.sources import file_of
from fedprint.types import FedprintError

Seeds = Annotated[tuple[int, ...], AfterValidator(all_differ), Field(min_length=1)]

COMPARED: Mapping[str, Any] = {"threat": {"learn_from": "offline"}}
"""What planes and studies set beneath all files: against no defence the adversary learns as it does against one.

From a few recorded updates of its own it would do worse there, and every defence would look good.
"""

_LEFT_OUT = {
    "defences": "strategies defend; write defences into one of them",
    "analyses": "a study has none, a plane has them beside its strategies",
}

Own = TypeVar("Own", bound=BaseModel)


def own_settings(source: Source, own: type[Own]) -> tuple[Own, list[str]]:
    """Return a file's settings, and the assignments that are not about them but about its experiment.

    Assignments whose first key is one of ``own`` (``seeds=[0]``) change the file. Raises FedprintError (one line).
    """
    keys = {field.alias or name for name, field in own.model_fields.items()}
    mine = [text for text in source.assignments if text.partition("=")[0].split(".")[0] in keys]
    try:
        settings = own.model_validate(apply_assignments(own_values(source), mine))
    except ValidationError as error:
        raise FedprintError(one_line(error, str(source.path), own)) from None
    return settings, [text for text in source.assignments if text not in mine]


def derived(
    source: Source,
    experiment: str,
    changes: Mapping[str, Any],
    assignments: Sequence[str],
    title: str,
    *,
    beneath: Mapping[str, Any] | None = None,
    over: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return an ``experiment`` (name or path) under ``changes`` and assignments, named as ``source`` is.

    A relative path counts from the folder of ``source``'s file first. ``beneath`` holds where no file says otherwise,
    ``over`` whatever files say. The experiment's own ``fast`` section comes before ``changes``. Raises FedprintError
    (one line) for what does not fit.
    """
    origin = source.path.stem
    own = read_yaml(file_of(source.root, experiment, beside=source.path.parent))
    if "data" not in own:
        raise FedprintError(f"{origin}: '{experiment}' is no single experiment; name one that is")
    quick = own.pop("fast", None) or {}
    own = merge(beneath or {}, merge(own, quick) if source.fast else own)
    values = resolved_values(source.root, merge(own, changes), False, assignments)
    named = {"name": source.name, "fast": source.fast, "report": {"title": title}}
    config = check_experiment({**values, **named, **(over or {})}, f"{origin}: experiment {experiment}")
    told = title_of(source, title, merge(own, changes), config.data)
    return config.model_copy(update={"report": ReportConfig(title=told)})


def undefended(
    source: Source, experiment: str, changes: Mapping[str, Any], assignments: Sequence[str], title: str
) -> Experiment:
    """Return :func:`derived` without defences and analyses: strategies defend, and a point needs no analysis.

    Where no file says otherwise, ``threat.learn_from`` is ``offline``.
    """
    for key in [*changes, *(text.partition("=")[0] for text in assignments)]:
        if reason := _LEFT_OUT.get(key.split(".")[0]):
            raise FedprintError(f"{source.path.stem}: {key}: {reason}")
    return derived(
        source, experiment, changes, assignments, title, beneath=COMPARED, over={"defences": [], "analyses": []}
    )


def defended(config: Experiment, defences: Sequence[Mapping[str, Any]], origin: str) -> Experiment:
    """Return the experiment under ``defences``; ``origin`` is named in the one-line error."""
    return check_experiment({**config.model_dump(mode="json"), "defences": list(defences)}, origin)
