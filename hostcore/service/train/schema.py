"""What ``/train`` takes and answers. The names are those of its specification."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge, MaxLen, MinLen
from pydantic import BaseModel, Field

from hostcore.job.bounds import Pattern
from hostcore.job.class_schema import json_schema
from hostcore.job.names import PluginName, RunId
from hostcore.job.sections import Text
from hostcore.job.structure import structure

_Namespace = Annotated[
    str, Pattern(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?", "a namespace: letters, digits, '-', '_' and '.'")
]
_JobName = Annotated[str, MinLen(1), MaxLen(253)]

EXAMPLE: Final = {
    "framework": "meta",
    "model_id": "meta-llama-3-70b",
    "run_id": "meta_demo_001",
    "num_nodes": 4,
    "gpus_per_node": 8,
    "cpus_per_node": 64,
    "memory_per_node_gb": 512,
    "checkpoint_base_uri": "s3://deepfinery-training/runs",
    "dataset_uri": "s3://deepfinery-datasets/aml/v1/",
    "resume_from_checkpoint": False,
    "extra_args": {"max_steps": 6000, "lr": 2e-5, "gradient_accumulation": 16},
    "env": {"EXPERIMENT_NAME": "meta-demo"},
    "labels": {"deepfinery.com/team": "aml"},
}


@attrs.frozen(kw_only=True)
class TrainingJobRequest:
    """A training job in the words of the unified trainer API."""

    framework: PluginName = attrs.field(metadata={"help": "The trainer plugin: `name`, or `distribution/name`."})
    model_id: Text = attrs.field(
        metadata={"help": "What is trained, for people and for the trainer, as its hyperparameter `model_id`."}
    )
    run_id: RunId = attrs.field(
        metadata={"help": "Unique for each run; becomes part of the job's name and of the places of its artifacts."}
    )
    checkpoint_base_uri: Text = attrs.field(
        metadata={"help": "Where all artifacts go: `<checkpoint_base_uri>/<run_id>/framework=<framework>/…`."}
    )
    dataset_uri: Text = attrs.field(
        metadata={"help": "The data: a file, a glob, or a folder of Parquet files. `.jsonl`, `.csv` and `.arrow` too."}
    )
    image: Text | None = attrs.field(
        default=None, metadata={"help": "The container image.", "default": "the operator's"}
    )
    num_nodes: Annotated[int, Ge(1)] = attrs.field(default=1, metadata={"help": "How many replicas."})
    gpus_per_node: Annotated[int, Ge(0)] | None = attrs.field(
        default=None, metadata={"help": "GPUs of each replica, and processes on it.", "default": "none"}
    )
    cpus_per_node: Annotated[int, Ge(1)] | None = attrs.field(
        default=None, metadata={"help": "CPU cores of each replica, requested and limited.", "default": "the engine's"}
    )
    memory_per_node_gb: Annotated[int, Ge(1)] | None = attrs.field(
        default=None,
        metadata={"help": "Memory of each replica in GiB, requested and limited.", "default": "the engine's"},
    )
    config_path: Text | None = attrs.field(
        default=None, metadata={"help": "For the trainer, as its hyperparameter `config_path`."}
    )
    resume_from_checkpoint: bool = attrs.field(
        default=False,
        metadata={"help": "Go on from the newest checkpoint of this run; it is an error if there is none."},
    )
    extra_args: Mapping[str, Any] = attrs.field(
        factory=dict,
        metadata={"help": "Keys of a job, such as `max_steps`, which they set; all others are hyperparameters."},
    )
    env: Mapping[str, str] = attrs.field(
        factory=dict, metadata={"help": "Environment variables; their names must be among those that are allowed."}
    )
    labels: Mapping[str, str] = attrs.field(factory=dict, metadata={"help": "Labels of the job, on its engine too."})
    annotations: Mapping[str, str] = attrs.field(factory=dict, metadata={"help": "Annotations of the job."})
    namespace: _Namespace | None = attrs.field(
        default=None, metadata={"help": "Where on the engine.", "default": "the operator's"}
    )
    job_name: _JobName | None = attrs.field(
        default=None,
        metadata={"help": "What the engine calls it; made a DNS label.", "default": "`<framework>-<run_id>`"},
    )


def read_request(document: Mapping[str, Any]) -> TrainingJobRequest:
    """A body as a request. Nothing is coerced.

    :raises Errors: Everything that is wrong, each with its JSON pointer.
    """
    return structure(TrainingJobRequest, document)


def request_body() -> dict[str, Any]:
    """The body for the OpenAPI document: it is read by :func:`read_request`, of which FastAPI knows nothing."""
    schema = {key: value for key, value in json_schema(TrainingJobRequest).items() if key != "$schema"}
    example = {"summary": "From the specification", "value": EXAMPLE}
    return {
        "required": True,
        "content": {"application/json": {"schema": schema, "examples": {"specification": example}}},
    }


class TrainingJobStatus(BaseModel):
    """How a job goes, in the words of the unified trainer API."""

    name: str = Field(description="What its engine calls it: a DNS label.", examples=["meta-meta-demo-001"])
    status: str = Field(
        description="`submitted`, `running`, `succeeded` or `failed`. Jobs that were cancelled, preempted or lost have "
        "failed, and `detail` begins with that word.",
        examples=["submitted"],
    )
    detail: str = Field(description="Why, in a sentence.", examples=["PyTorchJob created"])
    framework: str = Field(description="The trainer plugin.", examples=["meta"])
    run_id: str = Field(examples=["meta_demo_001"])
