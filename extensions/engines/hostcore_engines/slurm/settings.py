"""Settings of the launcher ``slurm``."""

import re
from typing import Annotated, Final, Literal

import attrs
from annotated_types import Ge, Le, MinLen

from hostcore_hookspecs import InvalidSettings

#: Minutes, or one of Slurm's other forms: MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.
_TIME: Final = re.compile(r"[0-9]{1,7}|([0-9]{1,5}:)?[0-9]{1,5}:[0-5]?[0-9]|[0-9]{1,4}-[0-9]{1,2}(:[0-5]?[0-9]){0,2}")
#: A value that sbatch reads from a script's comment as it is: no quotes, spaces, backslashes or ``#``.
_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:;=+*/@%~^&|!?<>()\[\]{}$-]+", re.ASCII)
_OPTION: Final = re.compile(rf"--(?P<name>[a-z][a-z0-9-]*)(=(?P<value>{_VALUE.pattern}))?", re.ASCII)

#: Options of sbatch that the launcher writes itself, and the job's keys for them.
_OWN: Final = {
    "account": "resources.namespace",
    "comment": "",
    "constraint": "the setting constraint",
    "cpus-per-task": "resources.cpus_per_node",
    "gpus-per-node": "resources.gpus_per_node",
    "job-name": "",
    "mem": "resources.memory_per_node_gb",
    "no-requeue": "the setting requeue",
    "nodes": "resources.num_nodes",
    "ntasks-per-node": "",
    "open-mode": "",
    "partition": "the setting partition",
    "qos": "the setting qos",
    "requeue": "the setting requeue",
    "signal": "the setting signal_seconds",
    "time": "the setting time_limit",
}
#: Options with which a job would not be what the launcher takes it for.
_REFUSED: Final = frozenset(
    {
        "array",
        "batch",
        "chdir",
        "clusters",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gid",
        "help",
        "ignore-pbs",
        "input",
        "kill-on-invalid-dep",
        "ntasks",
        "output",
        "parsable",
        "quiet",
        "test-only",
        "uid",
        "usage",
        "verbose",
        "version",
        "wait",
        "wrap",
    }
)

Word = Annotated[str, MinLen(1)]


@attrs.frozen(kw_only=True)
class Settings:
    """Partition, time limit, and requeueing."""

    partition: Word | None = attrs.field(
        default=None, metadata={"help": "The partition, or several: `gpu,gpu-low`.", "default": "the cluster's"}
    )
    qos: Word | None = attrs.field(default=None, metadata={"help": "The quality of service."})
    constraint: Word | None = attrs.field(
        default=None, metadata={"help": "Features that the nodes must have, as sbatch has it: `a100|h100`."}
    )
    time_limit: Annotated[int, Ge(1)] | Word | None = attrs.field(
        default=None,
        metadata={
            "help": "How long a start of the job may run: minutes, or a text such as `8:00:00` or `1-12:00:00`.",
            "default": "the partition's",
        },
    )
    signal_seconds: Annotated[int, Ge(0), Le(65535)] = attrs.field(
        default=120,
        metadata={
            "help": "How long before the time limit the run is asked to write a checkpoint and end; 0: not at all."
        },
    )
    requeue: bool = attrs.field(
        default=True,
        metadata={
            "help": "Whether a job that ran into its time limit, was preempted or lost a node goes back into the "
            "queue, and on from its newest checkpoint."
        },
    )
    gpu_type: Word | None = attrs.field(
        default=None, metadata={"help": "The kind of GPU, as the cluster calls it: `a100`.", "default": "any"}
    )
    gpu_option: Literal["gpus-per-node", "gres"] = attrs.field(
        default="gpus-per-node",
        metadata={"help": "How GPUs are asked for: `--gpus-per-node=8`, or `--gres=gpu:8` where that is not known."},
    )
    options: tuple[str, ...] = attrs.field(
        default=(),
        metadata={"help": 'More options of sbatch, a text each: `["--exclusive", "--mail-type=FAIL"]`.'},
    )
    before: tuple[str, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Lines of bash that the first node runs before the job: `module load cuda`. The first that "
            "fails ends it."
        },
    )


def check_settings(settings: Settings) -> None:
    """Refuse settings that make no sense, whatever the job.

    :raises InvalidSettings: The first that does not.
    """
    for name in ("partition", "qos", "constraint", "gpu_type"):
        value = getattr(settings, name)
        if value is not None and not _VALUE.fullmatch(value):
            raise InvalidSettings(
                f"/{name}", f"{value!r} has characters that sbatch does not take", hint="no spaces, no quotes"
            )
    limit = settings.time_limit
    if isinstance(limit, str) and not _TIME.fullmatch(limit):
        raise InvalidSettings(
            "/time_limit", f"{limit!r} is no time as Slurm writes it", hint="90 (minutes), 1:30:00 or 1-12:00:00"
        )
    for index, line in enumerate(settings.before):
        if "\0" in line or not line.strip():
            raise InvalidSettings(f"/before/{index}", "expected a line of bash")
    for index, option in enumerate(settings.options):
        _check_option(option, f"/options/{index}", settings)


def _check_option(option: str, pointer: str, settings: Settings) -> None:
    found = _OPTION.fullmatch(option)
    if found is None:
        raise InvalidSettings(
            pointer,
            f"{option!r} is no option of sbatch",
            hint='"--name=value" or "--name", without spaces, quotes, backslashes and #',
        )
    name = found["name"]
    if name in _OWN:
        said = f"say it with {_OWN[name]}" if _OWN[name] else "leave it out"
        raise InvalidSettings(pointer, f"--{name} is set by the launcher", hint=said)
    if name in _REFUSED or (name == "gres" and settings.gpu_option == "gres"):
        raise InvalidSettings(pointer, f"--{name} does not go together with this launcher", hint="leave it out")
