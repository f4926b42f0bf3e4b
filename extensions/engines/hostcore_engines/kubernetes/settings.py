"""Settings of both launchers for Kubernetes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import attrs
from annotated_types import Ge, Gt, Le


@attrs.frozen(kw_only=True)
class Toleration:
    """A taint of nodes that the pods put up with."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


@attrs.frozen(kw_only=True)
class KubernetesSettings:
    """Cluster and pods."""

    image: str | None = attrs.field(
        default=None, metadata={"help": "The container image of jobs that name none in `resources.image`."}
    )
    python: str = attrs.field(default="python", metadata={"help": "The interpreter in the image that has hostcore."})
    build_environments: bool = attrs.field(
        default=False,
        metadata={
            "help": "Whether a pod may build the `environment` of a job, each time that it starts; its image has "
            "`hostcore[environments]`. An image that has what the trainer needs begins sooner."
        },
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = attrs.field(
        default="IfNotPresent", metadata={"help": "When the image is pulled (`kubernetes-pytorchjob`)."}
    )
    image_pull_secrets: tuple[str, ...] = attrs.field(
        default=(), metadata={"help": "Names of the Secrets that open the registry."}
    )
    namespace: str | None = attrs.field(
        default=None,
        metadata={
            "help": "The namespace of jobs that name none in `resources.namespace`.",
            "default": "`TRAINER_JOBS_NAMESPACE`, else that of the pod hostcore runs in, else `default`",
        },
    )
    kubeconfig: Path | None = attrs.field(
        default=None,
        metadata={
            "help": "How to reach the cluster.",
            "default": "inside a cluster the service account, else `KUBECONFIG`, else `~/.kube/config`",
        },
    )
    context: str | None = attrs.field(
        default=None, metadata={"help": "The context in the kubeconfig.", "default": "its current one"}
    )
    timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
        default=30.0, metadata={"help": "How long the API server may take for an answer."}
    )
    volume: str | None = attrs.field(
        default=None,
        metadata={
            "help": "The PersistentVolumeClaim (ReadWriteMany) with the folder of the runs; pods see the run directory "
            "in it. Without it, a run is seen by its mirror alone (`checkpoint_base_uri`)."
        },
    )
    volume_path: str | None = attrs.field(
        default=None,
        metadata={
            "help": "Where `volume` is mounted here; the folder of the runs is below it. A folder above that one is "
            "mounted in the pods as well, to read.",
            "default": "the folder of the runs",
        },
    )
    gpu_resource: str = attrs.field(default="nvidia.com/gpu", metadata={"help": "What the cluster calls a GPU."})
    run_as_user: Annotated[int, Ge(1)] | None = attrs.field(
        default=1000,
        metadata={"help": "The user and group of the processes; null: that of the image, which must not be root."},
    )
    service_account: str | None = attrs.field(
        default=None, metadata={"help": "The pods' service account. Its token is not mounted."}
    )
    secret_env: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata={"help": 'Environment variables from Secrets: `{"AWS_SECRET_ACCESS_KEY": "s3-login/secret-key"}`.'},
    )
    node_selector: Mapping[str, str] = attrs.field(factory=dict, metadata={"help": "Labels that a node must have."})
    tolerations: tuple[Toleration, ...] = attrs.field(
        default=(), metadata={"help": "Taints of nodes that the pods tolerate."}
    )
    grace_margin_seconds: Annotated[float, Ge(0), Le(3600)] = attrs.field(
        default=35.0,
        metadata={
            "help": "How much longer than the job's `grace_seconds` a pod may take to end: uploads, and leaving Python."
        },
    )
