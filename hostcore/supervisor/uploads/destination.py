"""Where artifacts go: the uploaders of a job, ready to be called, and told apart."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import orjson

from hostcore.job.names import BUILTIN, is_builtin
from hostcore.job.sections import DeliveryUse
from hostcore.plugins.component import Component
from hostcore.plugins.hooks import Hooks
from hostcore.supervisor.delivery.addressee import unique_names
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

#: Copies to any URI that fsspec knows.
FSSPEC: Final = f"{BUILTIN}fsspec"
_KEY_LENGTH: Final = 16


def _nothing(*_: object) -> None:
    """Stands for ``open`` and ``close`` of an uploader that has none."""


@attrs.frozen(kw_only=True, eq=False)
class Destination:
    """One use of an uploader."""

    #: How messages name it: with its distribution and version.
    label: str
    #: Short, unique in the job: ``fsspec``, the second one ``fsspec.2``.
    name: str
    #: Whether the run fails at its end if this could not copy everything.
    required: bool = False
    upload_artifact: Callable[[Artifact], UploadReceipt]
    open: Callable[[UploadContext], object] = _nothing
    close: Callable[[], object] = _nothing
    #: Tells the place from any other: what has arrived at one says nothing about another. The same in every process.
    key: str = attrs.field()

    @key.default
    def _name_alone(self) -> str:
        return self.name


def destinations_of(
    components: Sequence[Component], uses: Sequence[DeliveryUse], *, base_uri: str | None = None
) -> list[Destination]:
    """The destinations that a job's uploaders are.

    :param components: Loaded, in the order of ``uses``.
    :param uses: What the job says of each.
    :param base_uri: The job's ``checkpoint_base_uri``; part of the place.
    """
    hooks = Hooks(components, kinds=("uploader",))
    names = unique_names([one.ref.name for one in components])
    found = []
    for one, name, use in zip(components, names, uses, strict=True):
        upload_artifact = hooks.bind("upload_artifact", of=one)
        assert upload_artifact is not None, "a component without the one required method does not load"
        found.append(
            Destination(
                label=one.ref.provenance if name == one.ref.name else f"{one.ref.provenance}, as {name}",
                name=name,
                required=use.required,
                upload_artifact=upload_artifact,
                open=hooks.bind("open", of=one) or _nothing,
                close=hooks.bind("close", of=one) or _nothing,
                key=_key(one, use, base_uri),
            )
        )
    return found


def _key(component: Component, use: DeliveryUse, base_uri: str | None) -> str:
    """A digest of the plugin and its settings: whoever changes the bucket in a job has copied nothing there yet."""
    place = [component.ref.dist, component.ref.name, dict(use.settings), base_uri]
    text = orjson.dumps(place, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:_KEY_LENGTH]


def mirroring(uses: Sequence[DeliveryUse], base_uri: str | None) -> tuple[DeliveryUse, ...]:
    """The uploaders of a job, with the one that its ``checkpoint_base_uri`` stands for, unless it names that itself."""
    named = any(is_builtin(use.use, "fsspec") and "uri" not in use.settings for use in uses)
    return tuple(uses) if base_uri is None or named else (*uses, DeliveryUse(use=FSSPEC))


def prefix_of(run_id: str, trainer: str) -> str:
    """Where a run belongs below any base: ``<run_id>/framework=<trainer>``; ``:`` and ``/`` in a name become ``-``."""
    return f"{run_id}/framework={trainer.replace(':', '-').replace('/', '-')}"
