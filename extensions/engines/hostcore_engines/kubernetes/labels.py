"""Labels and annotations of what is made for a run."""

from collections.abc import Mapping
from typing import Final

import attrs

from hostcore_engines.kubernetes.names import (
    label_value,
    pointer,
    require_annotations,
    require_key,
    require_text,
)
from hostcore_hookspecs import FatalError, LaunchContext

#: Distinguishes the tries of one launch from other launches.
LAUNCH_ID: Final = "hostcore/launch-id"
#: An annotation: a call of :func:`cancel` has suspended the job, not an administrator or a queue.
CANCELLED: Final = "hostcore/cancelled"
_RUN_ID: Final = "trainer.deepfinery/run-id"
_FRAMEWORK: Final = "trainer.deepfinery/framework"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
#: Keys that a job may not set: they identify the run. For both, since a label may become an annotation.
_OWN: Final = frozenset({LAUNCH_ID, CANCELLED, _RUN_ID, _FRAMEWORK, _MANAGED_BY})


@attrs.frozen(kw_only=True)
class Marks:
    """Labels, whose values have a grammar, and annotations, which have the texts that did not fit it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def as_dict(self) -> dict[str, dict[str, str]]:
        """As they stand in the metadata of an object."""
        return {"labels": dict(self.labels), "annotations": dict(self.annotations)}


def own_marks(ctx: LaunchContext) -> Marks:
    """The launcher's own marks, which everything has that is made for a launch.

    Pods have no others: a label of the job's could make them another service's, and an annotation have whatever watches
    pods (of secrets, of networks, of cloud accounts) open something to them.
    """
    own = _fitted({_RUN_ID: ctx.job.run_id, _FRAMEWORK: ctx.job.trainer})
    labels = {**own.labels, _MANAGED_BY: "hostcore"}
    if ctx.launch_id:
        labels[LAUNCH_ID] = label_value(ctx.launch_id)
    return attrs.evolve(own, labels=labels)


def marks_of(ctx: LaunchContext) -> Marks:
    """The marks of the object that the run is: the job's, and the launcher's own.

    :raises FatalError: The job has one that Kubernetes does not take, or that is the launcher's.
    """
    texts = {}
    for key, value in ctx.job.labels.items():
        where = pointer("labels", key)
        require_key(key, "key of a label", where)
        _require_free(key, "label", where)
        texts[key] = require_text(value, f"label {key}", where)
    require_annotations(ctx.job.annotations)
    for key in ctx.job.annotations:
        _require_free(key, "annotation", pointer("annotations", key))
    theirs, own = _fitted(texts), own_marks(ctx)
    return Marks(
        labels={**theirs.labels, **own.labels},
        annotations={**theirs.annotations, **ctx.job.annotations, **own.annotations},
    )


def _fitted(texts: Mapping[str, str]) -> Marks:
    """Texts as labels, and as annotations what had to be changed for that."""
    labels = {key: label_value(text) for key, text in texts.items()}
    return Marks(labels=labels, annotations={key: text for key, text in texts.items() if labels[key] != text})


def _require_free(key: str, what: str, where: str) -> None:
    if key in _OWN:
        raise FatalError(f"the {what} {key} is set by the launcher", pointer=where, hint="remove it")
