"""What ``/train`` takes and answers. The names are those of its specification."""

from typing import Any, Final

from pydantic import BaseModel, Field

from hostcore.job.schema import json_schema
from hostcore_service.train.request import TrainingJobRequest

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
