"""Labels and annotations of what is made for a run."""

from collections.abc import Mapping
from typing import Final

import attrs

from hostcore_builtin_plugins.launchers.kubernetes.names import (
    label_value,
    pointer,
    require_annotations,
    require_key,
    require_text,
)
from hostcore_hookspecs import FatalError, LaunchContext

#: Tells the tries of one launch from other launches.
LAUNCH_ID: Final = "hostcore/launch-id"
#: An annotation: somebody has asked :func:`cancel` for it, and no administrator or queue has suspended it.
CANCELLED: Final = "hostcore/cancelled"
_RUN_ID: Final = "trainer.deepfinery/run-id"
_FRAMEWORK: Final = "trainer.deepfinery/framework"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


@attrs.frozen(kw_only=True)
class Marks:
    """Labels, whose values have a grammar, and annotations, which have the texts that did not fit it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def as_dict(self) -> dict[str, dict[str, str]]:
        """As they stand in the metadata of an object."""
        return {"labels": dict(self.labels), "annotations": dict(self.annotations)}


def marks_of(ctx: LaunchContext) -> Marks:
    """The marks of everything that is made for a launch.

    :raises FatalError: The job has one that Kubernetes does not take, or that is the launcher's.
    """
    texts = {_RUN_ID: ctx.job.run_id, _FRAMEWORK: ctx.job.trainer}
    for key, value in ctx.job.labels.items():
        where = pointer("labels", key)
        require_key(key, "key of a label", where)
        if key in (LAUNCH_ID, _MANAGED_BY):
            raise FatalError(f"the label {key} is set by the launcher", pointer=where, hint="remove it")
        texts[key] = require_text(value, f"label {key}", where)
    require_annotations(ctx.job.annotations)
    labels = {key: label_value(text) for key, text in texts.items()}
    changed = {key: text for key, text in texts.items() if labels[key] != text}
    own = {_MANAGED_BY: "hostcore"}
    if ctx.launch_id:
        own[LAUNCH_ID] = label_value(ctx.launch_id)
    if CANCELLED in ctx.job.annotations:
        where = pointer("annotations", CANCELLED)
        raise FatalError(f"the annotation {CANCELLED} is set by the launcher", pointer=where, hint="remove it")
    return Marks(labels={**labels, **own}, annotations={**changed, **ctx.job.annotations})
