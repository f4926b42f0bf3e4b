"""The pods of a job. They pass the Pod Security Standard "restricted"."""

import math
import sys
from collections.abc import Sequence
from typing import Any, Final

import attrs

from hostcore_engines.kubernetes.environment import environment_of
from hostcore_engines.kubernetes.mounting import Mounts, command_of, mounts_of
from hostcore_engines.kubernetes.names import (
    cpu_quantity,
    memory_quantity,
    pointer,
    require_image,
    require_key,
    require_name,
    require_value,
)
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError, LaunchContext

#: https://kubernetes.io/docs/concepts/security/pod-security-standards/, "restricted".
_CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
#: Default of a job's ``grace_seconds``.
_GRACE_SECONDS: Final = 25.0


@attrs.frozen(kw_only=True)
class Pods:
    """Parts of the manifests that all pods of a job share."""

    image: str | None
    command: Sequence[str]
    env: Sequence[dict[str, Any]]
    #: ``requests`` and ``limits``, which are equal: a pod that takes more than it asked for is evicted first.
    resources: dict[str, dict[str, str]]
    mounts: Mounts
    security: dict[str, Any]
    container_security: dict[str, Any]
    grace_seconds: int
    #: Where they may run, and as whom: keys of a pod's ``spec``.
    placement: dict[str, Any]


def pods_of(
    ctx: LaunchContext,
    settings: KubernetesSettings,
    *,
    document: str,
    rendezvous: Sequence[str],
    show_values: bool,
) -> Pods:
    """Return the shared parts of a launch's pods.

    :param document: See :func:`.mounting.mounts_of`.
    :param rendezvous: See :func:`.mounting.command_of`.
    :param show_values: See :func:`.environment.environment_of`.
    :raises FatalError: Kubernetes would not take it.
    """
    mounts = mounts_of(ctx, settings, document=document)
    return Pods(
        image=_image(ctx, settings),
        command=command_of(ctx, settings, own_python=sys.executable, rendezvous=rendezvous),
        env=environment_of(
            ctx,
            settings.secret_env,
            runs_dir=mounts.runs_dir,
            show_values=show_values,
            share_secret=ctx.job.resources.num_nodes > 1 and settings.volume is None,
        ),
        resources=_resources(ctx, settings),
        mounts=mounts,
        security=_security(settings),
        container_security=_CONTAINER_SECURITY,
        grace_seconds=math.ceil(_grace_seconds(ctx) + settings.grace_margin_seconds),
        placement=_placement(settings),
    )


def _image(ctx: LaunchContext, settings: KubernetesSettings) -> str | None:
    if ctx.job.resources.image is not None:
        return require_image(ctx.job.resources.image, "/resources/image")
    return None if settings.image is None else require_image(settings.image, "/launcher/image")


def _resources(ctx: LaunchContext, settings: KubernetesSettings) -> dict[str, dict[str, str]]:
    resources = ctx.job.resources
    amounts: dict[str, str] = {}
    if resources.cpus_per_node is not None:
        amounts["cpu"] = cpu_quantity(resources.cpus_per_node)
    if resources.memory_per_node_gb is not None:
        amounts["memory"] = memory_quantity(resources.memory_per_node_gb)
    if resources.gpus_per_node:
        amounts[require_key(settings.gpu_resource, "name of a resource", "/launcher/gpu_resource")] = str(
            resources.gpus_per_node
        )
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _security(settings: KubernetesSettings) -> dict[str, Any]:
    user = settings.run_as_user
    # fsGroup: volumes, and the empty folders, are theirs to write.
    own = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    owned_once = {} if user is None else {"fsGroupChangePolicy": "OnRootMismatch"}
    return {"runAsNonRoot": True, **own, **owned_once, "seccompProfile": {"type": "RuntimeDefault"}}


def _grace_seconds(ctx: LaunchContext) -> float:
    told = ctx.document.get("grace_seconds", _GRACE_SECONDS)
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
        raise FatalError(f"grace_seconds is {told!r}, and no number of seconds", pointer="/grace_seconds")
    return float(told)


def _placement(settings: KubernetesSettings) -> dict[str, Any]:
    placement: dict[str, Any] = {}
    if settings.service_account is not None:
        where = "/launcher/service_account"
        placement["serviceAccountName"] = require_name(settings.service_account, "service account", where)
    if settings.image_pull_secrets:
        placement["imagePullSecrets"] = [
            {"name": require_name(name, "Secret", pointer("launcher", "image_pull_secrets", str(index)))}
            for index, name in enumerate(settings.image_pull_secrets)
        ]
    if settings.node_selector:
        for key, value in settings.node_selector.items():
            where = pointer("launcher", "node_selector", key)
            require_value(value, f"value of the label {key}", where)
            require_key(key, "key of a label", where)
        placement["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        placement["tolerations"] = [
            {key: value for key, value in attrs.asdict(one).items() if value} for one in settings.tolerations
        ]
    return placement
