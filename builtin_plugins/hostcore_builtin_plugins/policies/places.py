"""Where a job reads, and where it writes its checkpoints, as far as its settings tell."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore_hookspecs import Job, PluginUse

#: Keys under which a text is a place or a part of one, also if it has no scheme: a bucket, a server, an account.
_KEY: Final = re.compile(
    r"(?:^|[_.-])(ur[il]|ref|path|file|folder|dir|directory|index|bucket|container|host|endpoint|server|prox(y|ie)"
    r"|account|connection)s?([_.-](name|host|override|string))?$",
    re.IGNORECASE,
)
#: Writes to the job's ``checkpoint_base_uri``, if it has no ``uri``.
_MIRROR: Final = ("fsspec", "hostcore-builtin-plugins/fsspec")


def data_places(job: Job) -> Iterator[str]:
    """The data of a job, its weights and inputs, the checkpoint that it begins from, and the images of its samples."""
    images = [sample.source_image for sample in job.samples]
    # A reference among the inputs may be a URI or a path: nobody knows before the resolvers were asked.
    read = {"path": (job.weights, job.begins_from, *images), "inputs": [_input(one) for one in job.inputs.values()]}
    for place in _places((job.dataset, job.validation, job.test, read)):
        if place is not None:
            yield place


def upload_places(job: Job) -> Iterator[tuple[str, str | None]]:
    """The uploaders of a job, with each place that they write to; None: the settings do not tell."""
    for uploader in job.uploaders:
        places = list(_places(uploader.settings))
        yield from ((uploader.name, place) for place in places or ([] if _is_mirror(uploader) else [None]))


def _input(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {"ref": value}


def _is_mirror(uploader: PluginUse) -> bool:
    return uploader.name in _MIRROR and uploader.settings.get("uri") is None


def _places(value: Any, *, is_place: bool = False) -> Iterator[str | None]:
    """The places in settings; None for one that is a secret."""
    if isinstance(value, Mapping):
        if "$secret" not in value:
            for key, item in value.items():
                yield from _places(item, is_place=is_place or _KEY.search(key) is not None)
        elif is_place:
            yield None
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _places(item, is_place=is_place)
    elif isinstance(value, str) and (is_place or "://" in value or value.startswith(("/", "~"))):
        yield value
