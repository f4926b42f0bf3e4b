"""The launcher ``kubernetes-trainjob``: a TrainJob (``trainer.kubeflow.org/v1alpha1``) of Kubeflow Trainer v2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import attrs

from hostcore_engines.kubernetes.cluster import Object, ResourceKind
from hostcore_engines.kubernetes.labels import Marks
from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.names import require_name
from hostcore_engines.kubernetes.pods import Pods
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_engines.kubernetes.states import Conditions, condition
from hostcore_hookspecs import FatalError, LaunchContext

_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_NODE: Final = "batch.kubernetes.io/job-completion-index"
#: Who has made the patches, so that others who make some keep theirs.
_MANAGER: Final = "hostcore/launcher"
#: The CRD's own bounds.
_MOST_ARGUMENTS: Final = 128
_MOST_VARIABLES: Final = 128


class TrainJobLauncher(KubernetesLauncher):
    """Starts a run as a TrainJob of a runtime that trains with PyTorch.

    What the API has no field for is the runtime's: when pods are started again, how long the job is kept, priority.
    """

    @attrs.frozen(kw_only=True)
    class Settings(KubernetesSettings):
        """Cluster, pods, and the runtime that they are made from."""

        runtime: str = attrs.field(
            default="torch-distributed", metadata={"help": "The training runtime, one for PyTorch."}
        )
        runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = attrs.field(
            default="ClusterTrainingRuntime", metadata={"help": "`TrainingRuntime`: one of the job's namespace."}
        )

    plugin: ClassVar = "kubernetes-trainjob"
    kind: ClassVar = ResourceKind(
        name="TrainJob",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        plural="trainjobs",
        operator="Kubeflow Trainer v2",
    )
    #: The replicated job, and the container, that runtimes have for training.
    container: ClassVar = "node"
    #: torchrun finds the rest in variables ``PET_…``, which the operator sets.
    rendezvous: ClassVar[Sequence[str]] = ()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._runtime = settings

    def manifest(self, pods: Pods, marks: Marks, ctx: LaunchContext) -> Object:
        """See :meth:`KubernetesLauncher.manifest`."""
        _check_bounds(pods)
        resources = ctx.job.resources
        trainer: dict[str, Any] = {
            "command": list(pods.command),
            "env": list(pods.env),
            "numNodes": resources.num_nodes,
            "numProcPerNode": resources.ranks_per_node,
        }
        if pods.image is not None:
            trainer["image"] = pods.image
        if pods.resources:
            trainer["resourcesPerNode"] = pods.resources
        template = {"metadata": marks.as_dict(), "spec": self._pod(pods)}
        jobs = [{"name": self.container, "template": {"spec": {"template": template}}}]
        return {
            "runtimeRef": {
                "apiGroup": self.kind.group,
                "kind": self._runtime.runtime_kind,
                "name": require_name(self._runtime.runtime, "training runtime", "/launcher/runtime"),
            },
            "suspend": False,
            "trainer": trainer,
            "runtimePatches": [
                {
                    "manager": _MANAGER,
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
                }
            ],
        }

    def _pod(self, pods: Pods) -> Object:
        container = {
            "name": self.container,
            "securityContext": pods.container_security,
            "volumeMounts": list(pods.mounts.mounts),
        }
        return {
            "containers": [container],
            "securityContext": pods.security,
            "terminationGracePeriodSeconds": pods.grace_seconds,
            "volumes": list(pods.mounts.volumes),
            **pods.placement,
        }

    def conditions(self, job: Object) -> Conditions:
        """See :meth:`KubernetesLauncher.conditions`. Running is no condition: it follows from the replicated jobs."""
        jobs = (job.get("status") or {}).get("jobsStatus") or ()
        is_active = any(one.get("active") or one.get("ready") for one in jobs)
        return Conditions(
            succeeded=condition(job, "Complete", "TrainJob completed"),
            failed=condition(job, "Failed", "TrainJob failed"),
            running="TrainJob pods active" if is_active else None,
            suspended=condition(job, "Suspended", "TrainJob suspended"),
            submitted="TrainJob submitted",
        )

    def suspended(self) -> Object:
        """See :meth:`KubernetesLauncher.suspended`."""
        return {"suspend": True}

    def pod_labels(self, name: str) -> Mapping[str, str]:
        """See :meth:`KubernetesLauncher.pod_labels`."""
        return {_JOBSET: name, _REPLICATED_JOB: self.container}

    def first_pod(self, pods: Sequence[Object]) -> Object | None:
        """See :meth:`KubernetesLauncher.first_pod`: the newest, if the job has replaced one that failed."""
        first = [pod for pod in pods if pod["metadata"]["labels"].get(_NODE) == "0"]
        return max(first, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def _check_bounds(pods: Pods) -> None:
    for what, amount, most, pointer in (
        ("arguments", len(pods.command), _MOST_ARGUMENTS, "/launcher"),
        ("environment variables", len(pods.env), _MOST_VARIABLES, "/resources/env"),
    ):
        if amount > most:
            raise FatalError(f"{amount} {what}; a TrainJob takes {most}", pointer=pointer)
