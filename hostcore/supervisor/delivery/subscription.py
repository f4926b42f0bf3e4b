"""The subscriptions of a job: each use of a reporter or uploader, its methods, and its properties."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs
import orjson

from hostcore.job.names import BUILTIN, is_builtin
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import Component
from hostcore.plugins.published import recorded_distribution
from hostcore.runs.directory import RunDirectory
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

#: Copies to any URI that fsspec knows.
FSSPEC: Final = f"{BUILTIN}fsspec"
_KEY_LENGTH: Final = 16


def _nothing(*_: object) -> None:
    """Stands for ``open`` and ``close`` of a component that has none."""


@attrs.frozen(kw_only=True, eq=False)
class Subscription:
    """One use of a component that something is delivered to."""

    #: Its name in messages, with its distribution and version.
    label: str
    #: Short, unique in the job: ``mlflow``, the second one ``mlflow.2``.
    name: str
    #: True if the run fails at its end when this has not taken everything.
    required: bool = False
    open: Callable[[Any], object] = _nothing
    close: Callable[[], object] = _nothing
    #: Held by the thread that calls it, where an earlier attempt's may still hang in one of its methods.
    in_use: "threading.Lock | None" = None


@attrs.frozen(kw_only=True, eq=False)
class ReporterSubscription(Subscription):
    """One use of a reporter."""

    #: The plugin, whatever its version: a cursor of another one is not used.
    identity: str
    #: True if it gets none of the events that earlier attempts have left.
    live_only: bool = False
    report_event: Callable[[Event], object]
    in_use: "threading.Lock | None" = attrs.field(factory=threading.Lock)


@attrs.frozen(kw_only=True, eq=False)
class Destination(Subscription):
    """One use of an uploader."""

    upload_artifact: Callable[[Artifact], UploadReceipt]
    #: Distinguishes the place from any other: arrivals count for one place. The same in every process.
    key: str = attrs.field()

    @key.default
    def _name_alone(self) -> str:
        return self.name


_locks: Final[WeakKeyDictionary[Component, threading.Lock]] = WeakKeyDictionary()


def subscriptions_of(reporters: Sequence[Component], uses: Sequence[DeliveryUse]) -> list[ReporterSubscription]:
    """Return the reporters of a job.

    :param reporters: Loaded, in the order of ``uses``.
    :param uses: The entry of each in the job.
    """
    hooks = Hooks(reporters, kinds=("reporter",))
    names = unique_names([one.ref.name for one in reporters])
    return [
        ReporterSubscription(
            label=one.ref.provenance,
            name=name,
            identity=f"{_recorded_distribution(one)}/{one.ref.name}",
            required=use.required,
            live_only=getattr(one.instance, "LIVE_ONLY", False) is True,
            in_use=_locks.setdefault(one, threading.Lock()),
            **_methods(hooks, one, "report_event"),
        )
        for one, name, use in zip(reporters, names, uses, strict=True)
    ]


def destinations_of(
    uploaders: Sequence[Component], uses: Sequence[DeliveryUse], *, base_uri: str | None = None
) -> list[Destination]:
    """Return the uploaders of a job that copy; one that only wraps the others is around each of them.

    :param uploaders: Loaded, in the order of ``uses``.
    :param uses: The entry of each in the job.
    :param base_uri: The job's ``checkpoint_base_uri``; part of the place.
    """
    hooks = Hooks(uploaders, kinds=("uploader",))
    copying = [pair for pair in zip(uploaders, uses, strict=True) if "upload_artifact" in pair[0].hook_names]
    names = unique_names([one.ref.name for one, _ in copying])
    return [
        Destination(
            label=one.ref.provenance if name == one.ref.name else f"{one.ref.provenance}, as {name}",
            name=name,
            required=use.required,
            key=_key(one, use, base_uri),
            **_methods(hooks, one, "upload_artifact"),
        )
        for (one, use), name in zip(copying, names, strict=True)
    ]


def _methods(hooks: Hooks, component: Component, required: str) -> dict[str, Any]:
    """Return the methods of a component by their names; ``open`` and ``close`` are optional."""
    return {name: hooks.bind(name, of=component) or _nothing for name in ("open", required, "close")}


def _recorded_distribution(component: Component) -> str | None:
    ref = component.ref
    return ref.dist and recorded_distribution(ref.dist, ref.kind, ref.name)


def _key(component: Component, use: DeliveryUse, base_uri: str | None) -> str:
    """Return a digest of the plugin and its settings: in another bucket of the job, nothing has arrived yet."""
    place = [_recorded_distribution(component), component.ref.name, dict(use.settings), base_uri]
    text = orjson.dumps(place, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:_KEY_LENGTH]


def mirroring(uses: Sequence[DeliveryUse], base_uri: str | None) -> tuple[DeliveryUse, ...]:
    """Return the uploaders of a job, with that of its ``checkpoint_base_uri``, unless the job names it."""
    named = any(is_builtin(use.use, "fsspec") and "uri" not in use.settings for use in uses)
    return tuple(uses) if base_uri is None or named else (*uses, DeliveryUse(use=FSSPEC))


def prefix_of(run_id: str, trainer: str) -> str:
    """Return the place of a run below any base: ``<run_id>/framework=<trainer>``; ``:`` and ``/`` become ``-``."""
    return f"{run_id}/framework={trainer.replace(':', '-').replace('/', '-')}"


def upload_context(spec: JobSpec, directory: RunDirectory, attempt: int, *, base_uri: str | None) -> UploadContext:
    """Return the argument of the ``open`` of a job's uploaders.

    :param base_uri: The ``checkpoint_base_uri`` of the job, or another in its place.
    """
    return UploadContext(
        run_id=directory.run_id,
        attempt=attempt,
        job=job_view(spec),
        run_dir=str(directory.path),
        base_uri=base_uri,
        prefix=prefix_of(directory.run_id, spec.trainer),
        is_canceled=lambda: False,
    )


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names that are all different: a second ``mlflow`` becomes ``mlflow.2``."""
    given: list[str] = []
    for name in names:
        given.append(next(one for one in _variants(name) if one not in given))
    return given


def _variants(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in range(2, 1_000_000))
