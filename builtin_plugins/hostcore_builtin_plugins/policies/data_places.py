"""What a job reads, as far as the contract says where it is written."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore_hookspecs import Job

#: Keys of data sources that are a place or a list of places.
_PATHS: Final = ("parquet_paths", "paths", "index")


def data_places(job: Job) -> list[str]:
    """The data of a job, its weights and inputs, and the checkpoint that it begins from."""
    return list(_data_places(job))


def _data_places(job: Job) -> Iterator[str]:
    for dataset in (job.dataset, job.validation, job.test):
        for key in _PATHS:
            yield from _strings((dataset or {}).get(key))
    for value in (job.weights, job.begins_from):
        yield from _strings(value)
    for one in job.inputs.values():
        yield from _strings([one.get("ref"), one.get("uri")] if isinstance(one, Mapping) else one)


def _strings(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, str):
            yield one
