"""A job as flat parameters, for trackers that compare runs by them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from hostcore_hookspecs import Job

#: What describes the run, and does not tell how it was trained.
_NOT_PARAMETERS = frozenset({"run_id", "owner", "labels", "annotations"})

Parameter = str | int | float | bool


def parameters_of(job: Job) -> dict[str, Parameter]:
    """What was trained, and how: ``{"trainer": "char-lm", "hyperparams.lr": 0.001, "dataset.batch_size": 32, …}``.

    Lists are JSON; a reference to a secret stays a reference; what is null is left out.
    """
    fields = {field.name: getattr(job, field.name) for field in attrs.fields(Job) if field.name not in _NOT_PARAMETERS}
    return dict(_flat(fields, ""))


def config_of(job: Job) -> dict[str, Any]:
    """The whole job as nested JSON, without what is null or empty, and without environment variables."""
    config: dict[str, Any] = json.loads(json.dumps(attrs.asdict(job), default=_plain))
    del config["resources"]["env"]  # they may hold anything
    return {key: value for key, value in config.items() if value not in (None, {}, [])}


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Parameter]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and "$secret" not in value:
            yield from _flat(value, f"{name}.")
        elif isinstance(value, str | int | float | bool):
            yield name, value
        elif value is not None and value != {}:
            yield name, json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
