"""A job as flat parameters, for trackers that compare runs by them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from hostcore_hookspecs import Job
from hostcore_trackers.names import distinct

#: Keys that describe the run, not its training.
_NOT_PARAMETERS = frozenset({"run_id", "owner", "labels", "annotations"})

Parameter = str | int | float | bool


def parameters_of(job: Job) -> dict[str, Parameter]:
    """Return a job's parameters: ``{"trainer": "char-lm", "hyperparams.lr": 0.001, "dataset.batch_size": 32, …}``.

    Lists are JSON; a reference to a secret stays a reference; null values are left out.
    """
    fields = {field.name: getattr(job, field.name) for field in attrs.fields(Job) if field.name not in _NOT_PARAMETERS}
    parameters: dict[str, Parameter] = {}
    for path, value in _flat(fields, ()):
        name = ".".join(path)
        if name in parameters:  # of {"a.b": 1} and {"a": {"b": 2}}
            name = distinct(json.dumps(path), name)
        parameters[name] = value
    return parameters


def config_of(job: Job) -> dict[str, Any]:
    """The whole job as nested JSON, without what is null or empty, and without environment variables."""
    config: dict[str, Any] = json.loads(json.dumps(attrs.asdict(job), default=_plain))
    del config["resources"]["env"]  # they may hold anything
    return {key: value for key, value in config.items() if value not in (None, {}, [])}


def _flat(values: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Parameter]]:
    for key, value in values.items():
        path = (*before, str(key))
        if isinstance(value, Mapping) and value and "$secret" not in value:
            yield from _flat(value, path)
        elif isinstance(value, str | int | float | bool):
            yield path, value
        elif value is not None and value != {}:
            yield path, json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
