"""Training job of the unified trainer API: the body of ``POST /train``, and the variables of containers."""

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from annotated_types import Ge, MaxLen, MinLen

from hostcore.job.bounds import Pattern
from hostcore.job.forms import structure
from hostcore.job.names import PluginName, RunId
from hostcore.job.sections import Text

_Namespace = Annotated[
    str, Pattern(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?", "a namespace: letters, digits, '-', '_' and '.'")
]
_JobName = Annotated[str, MinLen(1), MaxLen(253)]


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
        default=None,
        metadata={
            "help": "For the trainer, as its hyperparameter `config_path`; for one without it, `CONFIG_PATH` in "
            "containers."
        },
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
