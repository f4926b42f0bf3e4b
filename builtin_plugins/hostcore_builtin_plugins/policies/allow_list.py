"""The policy ``allow-list``: jobs may use the trainers, images, namespaces and places that the operator lists."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import unquote

import attrs

from hostcore_hookspecs import Denial, Job, Plan, PolicyContext, Principal, Uri

Patterns = tuple[str, ...] | None
Places = tuple[Uri, ...] | None

_PATTERNS: Final = "Patterns (`*`, `?`); without the setting, anything."
#: Keys under which a text is a place or a part of one, also if it has no scheme: a bucket, a server, an account.
_KEY: Final = re.compile(
    r"(?:^|[_.-])(ur[il]|ref|path|file|folder|dir|directory|index|bucket|container|host|endpoint|server|prox(y|ie)"
    r"|account|connection)s?([_.-](name|host|override|string))?$",
    re.IGNORECASE,
)
#: Writes to the job's ``checkpoint_base_uri``, if it has no ``uri``.
_MIRROR: Final = "hostcore-builtin-plugins/fsspec"


class AllowList:
    """Denies jobs that name what is not on one of the lists.

    A list that is not given allows everything; an empty one allows nothing of its kind. A job that does not name an
    image, a namespace, data or a mirror is not denied for that.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of ``allow-list``."""

        trainers: Patterns = attrs.field(
            default=None,
            metadata={
                "help": "Trainers, as `name` (of any distribution) or `distribution/name`; distributions may be "
                f"spelled as package indexes take them. {_PATTERNS}"
            },
        )
        images: Patterns = attrs.field(default=None, metadata={"help": f"Container images. {_PATTERNS}"})
        namespaces: Patterns = attrs.field(
            default=None, metadata={"help": f"Kubernetes namespaces, or Slurm accounts. {_PATTERNS}"}
        )
        data_uris: Places = attrs.field(
            default=None,
            metadata={
                "help": "What is read: datasets, weights, inputs, checkpoints to begin from, the images of samples. "
                f"{_PATTERNS}"
            },
        )
        checkpoint_uris: Places = attrs.field(
            default=None,
            metadata={
                "help": "Where runs are copied to: `checkpoint_base_uri`, and the places in the settings of uploaders. "
                f"One whose settings name none is denied. {_PATTERNS}"
            },
        )
        principals: Patterns = attrs.field(
            default=None, metadata={"help": "The users that this holds for, by name; without the setting, all."}
        )
        groups: Patterns = attrs.field(
            default=None, metadata={"help": "Whom this is about, by one of their groups; beside `principals`."}
        )
        over_http_only: bool = attrs.field(
            default=False, metadata={"help": "Whether jobs from a shell of this machine are let pass."}
        )

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def authorize_job(self, plan: Plan, principal: Principal, ctx: PolicyContext) -> Denial | None:
        """Deny what is not on the lists; everything that is wrong, at once."""
        if (self._settings.over_http_only and not ctx.over_http) or not self._is_about(principal):
            return None
        denied = [
            f"the {what} is not allowed; allowed {_listed(patterns)}" for what, patterns in self._not_listed(plan)
        ]
        if not denied:
            return None
        return Denial(reason="; ".join(denied), hint="ask the operator of this machine or service to list it")

    def _is_about(self, principal: Principal) -> bool:
        chosen = self._settings
        if chosen.principals is None and chosen.groups is None:
            return True
        return _is_listed((principal.name,), chosen.principals or ()) or any(
            _is_listed((group,), chosen.groups or ()) for group in principal.groups
        )

    def _not_listed(self, plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield each name that matches none of the patterns, and the patterns."""
        chosen, job = self._settings, plan.job
        if chosen.trainers is not None:
            trainers = [_canonical(one) for one in chosen.trainers]
            for name in _trainers(plan):
                plain = name.rpartition("/")[2]
                if not _is_listed((name, plain), trainers):
                    yield f"trainer {plain!r}", chosen.trainers
        for what, value, patterns in (
            ("image", job.resources.image, chosen.images),
            ("namespace", job.resources.namespace, chosen.namespaces),
        ):
            if value is not None and patterns is not None and not _is_listed((value,), patterns):
                yield f"{what} {value!r}", patterns
        if chosen.data_uris is not None:
            for place in data_places(job):
                if not _is_place_listed(place, chosen.data_uris):
                    yield f"place to read {place!r}", chosen.data_uris
        if chosen.checkpoint_uris is not None:
            yield from _uploads_not_listed(plan, chosen.checkpoint_uris)


def _canonical(name: str) -> str:
    """Return the name of a plugin, or a pattern, with its distribution as package indexes compare it (PEP 503)."""
    distribution, slash, plain = name.rpartition("/")
    return f"{re.sub(r'[-_.]+', '-', distribution).lower()}{slash}{plain}"


def _names(plan: Plan, kind: str, named: Sequence[str]) -> list[str]:
    """Return the plugins of a kind that the job's names resolve to; the names, where another environment has them."""
    found = [f"{one.dist}/{one.name}" if one.dist else one.name for one in plan.plugins if one.kind == kind]
    return [_canonical(one) for one in found or named]


def _trainers(plan: Plan) -> list[str]:
    return _names(plan, "trainer", [plan.job.trainer] if plan.job.trainer else [])


def _uploads_not_listed(plan: Plan, patterns: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    job = plan.job
    if job.checkpoint_base_uri and not _is_place_listed(job.checkpoint_base_uri, patterns):
        yield f"place for checkpoints {job.checkpoint_base_uri!r}", patterns
    for uploader, place in upload_places(job, _names(plan, "uploader", [one.name for one in job.uploaders])):
        if place is None and not _is_listed(("",), patterns):  # an unknown place is only covered by *
            yield f"uploader {uploader!r}, whose settings do not tell where it writes to,", patterns
        elif place is not None and not _is_place_listed(place, patterns):
            yield f"place {place!r} of the uploader {uploader!r}", patterns


def _is_listed(spellings: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)


def _is_place_listed(place: str, patterns: Sequence[str]) -> bool:
    """Return True for a place that begins as a pattern does and does not lead out of it by ``..``, however spelled."""
    decoded = unquote(unquote(place)).replace("\\", "/")
    if ".." in decoded.split("/"):
        return False
    return _is_listed((place, f"{place.rstrip('/')}/"), patterns)


def _listed(patterns: Sequence[str]) -> str:
    return "are " + ", ".join(patterns) if patterns else "is none"


def data_places(job: Job) -> Iterator[str]:
    """The data of a job, its weights and inputs, the checkpoint that it begins from, and the images of its samples."""
    images = [sample.source_image for sample in job.samples]
    # A reference among the inputs may be a URI or a path: only the resolvers can tell.
    read = {"path": (job.weights, job.begins_from, *images), "inputs": [_input(one) for one in job.inputs.values()]}
    for place in _places((job.dataset, job.validation, job.test, read)):
        if place is not None:
            yield place


def upload_places(job: Job, names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the uploaders of a job, with each place that they write to; None: the settings do not have it.

    :param names: What the job's names of uploaders resolve to.
    """
    for uploader, name in zip(job.uploaders, names, strict=True):
        places = list(_places(uploader.settings))
        is_mirror = name in (_MIRROR, "fsspec") and uploader.settings.get("uri") is None
        yield from ((uploader.name, place) for place in places or ([] if is_mirror else [None]))


def _input(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {"ref": value}


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
