"""The launcher ``kubernetes-pytorchjob``: a PyTorchJob (``kubeflow.org/v1``) of Kubeflow's training operator."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import attrs
from annotated_types import Ge

from hostcore_engines.kubernetes.cluster import Object, ResourceKind
from hostcore_engines.kubernetes.labels import Marks
from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.pods import Pods
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_engines.kubernetes.states import Conditions, condition
from hostcore_hookspecs import FatalError, LaunchContext

_JOB_NAME: Final = "training.kubeflow.org/job-name"
_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_WEEK_SECONDS: Final = 7 * 86_400


class PytorchJobLauncher(KubernetesLauncher):
    """Starts a run as a PyTorchJob: a Master, and a Worker for each further node."""

    @attrs.frozen(kw_only=True)
    class Settings(KubernetesSettings):
        """Cluster, pods, and restarts by the operator."""

        restart_policy: Literal["Never", "OnFailure"] = attrs.field(
            default="Never",
            metadata={
                "help": "`OnFailure`: start a container again that ended with another exit code than 0, and pods that "
                "their node has lost."
            },
        )
        backoff_limit: Annotated[int, Ge(0)] | None = attrs.field(
            default=None,
            metadata={"help": "How often at most, with `OnFailure`; the log is gone after that.", "default": "3"},
        )
        clean_pod_policy: Literal["All", "Running", "None"] = attrs.field(
            default="Running",
            metadata={"help": "Which pods the operator removes at the end. The log of one that it removes is gone."},
        )
        ttl_seconds_after_finished: Annotated[int, Ge(0)] | None = attrs.field(
            default=_WEEK_SECONDS,
            metadata={"help": "How long the job is kept after its end, with its log; null: until it is deleted."},
        )

    plugin: ClassVar = "kubernetes-pytorchjob"
    kind: ClassVar = ResourceKind(
        name="PyTorchJob",
        group="kubeflow.org",
        version="v1",
        plural="pytorchjobs",
        operator="the Kubeflow training operator",
    )
    #: The operator knows its own container by this name.
    container: ClassVar = "pytorch"
    # The operator calls the number of the node its rank.
    rendezvous: ClassVar = ("--node-rank=$(RANK)", "--master-addr=$(MASTER_ADDR)", "--master-port=$(MASTER_PORT)")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._run_policy = settings

    def manifest(self, pods: Pods, marks: Marks, ctx: LaunchContext) -> Object:
        """See :meth:`KubernetesLauncher.manifest`."""
        resources, settings = ctx.job.resources, self._run_policy
        replica = {"restartPolicy": settings.restart_policy, "template": self._template(pods, marks)}
        replicas = {"Master": {"replicas": 1, **replica}}
        if resources.num_nodes > 1:
            replicas["Worker"] = {"replicas": resources.num_nodes - 1, **replica}
        run_policy: dict[str, Any] = {"cleanPodPolicy": settings.clean_pod_policy, "suspend": False}
        if settings.restart_policy == "OnFailure":
            run_policy["backoffLimit"] = 3 if settings.backoff_limit is None else settings.backoff_limit
        if settings.ttl_seconds_after_finished is not None:
            run_policy["ttlSecondsAfterFinished"] = settings.ttl_seconds_after_finished
        return {
            "nprocPerNode": str(resources.ranks_per_node),  # a string, since it may be "auto"
            "runPolicy": run_policy,
            "pytorchReplicaSpecs": replicas,
        }

    def _template(self, pods: Pods, marks: Marks) -> Object:
        if pods.image is None:
            raise FatalError(
                "no container image is given",
                pointer="/resources/image",
                hint='"resources": {"image": "registry.example/trainer:1.0"}, or "image" in the launcher\'s settings',
            )
        container = {
            "name": self.container,
            "image": pods.image,
            "imagePullPolicy": self._settings.image_pull_policy,
            "command": list(pods.command),
            "env": list(pods.env),
            "resources": pods.resources,
            "securityContext": pods.container_security,
            # What it printed last is in the pod's status, when it has failed.
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": list(pods.mounts.mounts),
        }
        return {
            # The operator marks its pods itself; a service mesh would keep them from ending.
            "metadata": {
                "labels": dict(marks.labels),
                "annotations": {**marks.annotations, "sidecar.istio.io/inject": "false"},
            },
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [container],
                "enableServiceLinks": False,
                "securityContext": pods.security,
                "terminationGracePeriodSeconds": pods.grace_seconds,
                "volumes": list(pods.mounts.volumes),
                **pods.placement,
            },
        }

    def conditions(self, job: Object) -> Conditions:
        """See :meth:`KubernetesLauncher.conditions`. The messages are those of the original training API."""
        replicas = ((job.get("status") or {}).get("replicaStatuses") or {}).values()
        is_active = any((replica or {}).get("active") for replica in replicas)
        return Conditions(
            succeeded=condition(job, "Succeeded", "PyTorchJob completed"),
            failed=condition(job, "Failed", "PyTorchJob failed"),
            running=condition(job, "Running", "PyTorchJob pods active")
            or ("PyTorchJob pods active" if is_active else None),
            suspended=condition(job, "Suspended", "PyTorchJob suspended"),
            submitted=condition(job, "Restarting", "PyTorchJob restarting") or "PyTorchJob submitted",
        )

    def suspended(self) -> Object:
        """See :meth:`KubernetesLauncher.suspended`."""
        return {"runPolicy": {"suspend": True}}

    def pod_labels(self, name: str) -> Mapping[str, str]:
        """See :meth:`KubernetesLauncher.pod_labels`."""
        return {_JOB_NAME: name}

    def first_pod(self, pods: Sequence[Object]) -> Object | None:
        """See :meth:`KubernetesLauncher.first_pod`."""
        masters = [pod for pod in pods if pod["metadata"]["labels"].get(_REPLICA_TYPE) == "master"]
        return masters[-1] if masters else None
