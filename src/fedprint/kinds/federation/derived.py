"""Experiments that others build on: a plane, a study or an audit takes one from its file and changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from fedprint.kinds.base import Request
from fedprint.kinds.config_files import apply_assignments, merge, one_line
from fedprint.kinds.federation.config import Experiment, ReportConfig, all_differ, check_experiment, resolved_values
from fedprint.kinds.hardware import read_settings
from fedprint.kinds.jobs import file_values, title_of
from fedprint.kinds.requests import file_of
from fedprint.types import FedprintError

Seeds = Annotated[tuple[int, ...], AfterValidator(all_differ), Field(min_length=1)]

COMPARED: Mapping[str, Any] = {"threat": {"learn_from": "offline"}}
"""Defaults of planes and studies below all files: the adversary learns in the same way with and without a defence.

From its few recorded updates it would do worse without a defence, and every defence would look better than it is.
"""

_LEFT_OUT = {
    "defences": "strategies defend; write defences into one of them",
    "analyses": "a study has none, a plane has them beside its strategies",
}

FileSettings = TypeVar("FileSettings", bound=BaseModel)


def file_settings(request: Request, whole: type[FileSettings]) -> tuple[FileSettings, list[str]]:
    """Return a file's settings, and the assignments that are about its experiment.

    Assignments whose first key is a field of ``whole`` (``seeds=[0]``) change the file. FedprintError is one line.
    """
    keys = {field.alias or name for name, field in whole.model_fields.items()}
    mine = [text for text in request.assignments if text.partition("=")[0].split(".")[0] in keys]
    try:
        settings = whole.model_validate(apply_assignments(file_values(request), mine))
    except ValidationError as error:
        raise FedprintError(one_line(error, str(request.path), whole, mine)) from None
    return settings, [text for text in request.assignments if text not in mine]


def derived(
    request: Request,
    experiment: str,
    changes: Mapping[str, Any],
    assignments: Sequence[str],
    title: str,
    *,
    beneath: Mapping[str, Any] | None = None,
    over: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return an ``experiment`` (name or path) under ``changes`` and assignments, named as ``request`` is.

    A relative path counts from the folder of ``request``'s file first. Files override ``beneath``, and ``over``
    overrides files. The experiment's own ``fast`` section comes before ``changes``. Raises FedprintError (one line)
    for what does not fit.
    """
    origin = request.path.stem
    file = read_settings(file_of(request.root, experiment, beside=request.path.parent))
    if "data" not in file:
        raise FedprintError(f"{origin}: '{experiment}' is no single experiment; name one that is")
    quick = file.pop("fast", None) or {}
    changed = merge(merge(beneath or {}, merge(file, quick) if request.fast else file), changes)
    values = resolved_values(request.root, changed, False, assignments)
    named = {"name": request.name, "fast": request.fast, "report": {"title": title}}
    config = check_experiment({**values, **named, **(over or {})}, f"{origin}: experiment {experiment}", assignments)
    report = ReportConfig(title=title_of(request, title, changed, config.data))
    return config.model_copy(update={"report": report})


def undefended(
    request: Request, experiment: str, changes: Mapping[str, Any], assignments: Sequence[str], title: str
) -> Experiment:
    """Return :func:`derived` without defences and analyses: strategies defend, and a point needs no analysis.

    ``threat.learn_from`` is ``offline`` unless a file sets it.
    """
    for key in [*changes, *(text.partition("=")[0] for text in assignments)]:
        if reason := _LEFT_OUT.get(key.split(".")[0]):
            raise FedprintError(f"{request.path.stem}: {key}: {reason}")
    return derived(
        request, experiment, changes, assignments, title, beneath=COMPARED, over={"defences": [], "analyses": []}
    )


def defended(config: Experiment, defences: Sequence[Mapping[str, Any]], origin: str) -> Experiment:
    """Return the experiment under ``defences``; ``origin`` is named in the one-line error."""
    return check_experiment({**config.model_dump(mode="json"), "defences": list(defences)}, origin)
