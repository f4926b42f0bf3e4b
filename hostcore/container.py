"""``python -m hostcore.container``: what a container of the image starts.

================================ =====================================================================================
arguments                        ``docker run IMAGE run job.json``: the arguments of the ``hostcore`` command
``WORKER_MODE`` is set           a run as :mod:`hostcore.entrypoint` describes it
``FRAMEWORK`` or flags are given a run in the words of the unified trainer API, below
================================ =====================================================================================

In the words of the unified trainer API, a job is described by variables, or by the flags of its ``train.py``; flags win.
What they mean for the job is what ``POST /train`` makes of the same fields.

=============================== ============================ =========================================================
variable                        flag                         field
=============================== ============================ =========================================================
``FRAMEWORK``                   ``--framework``              ``framework``: the trainer plugin
``MODEL_ID``                    ``--model-id``               ``model_id``
``RUN_ID``                      ``--run-id``                 ``run_id``
``CHECKPOINT_BASE_URI``         ``--checkpoint-base-uri``    ``checkpoint_base_uri``
``DATASET_URI``                 ``--dataset-uri``            ``dataset_uri``
``CONFIG_PATH``                 ``--config``                 ``config_path``
``RESUME_FROM_CHECKPOINT``      ``--resume``                 ``resume_from_checkpoint``: ``1`` or ``true``
``TRAINING_EXTRA_ARGS_JSON``    ``--extra-args-json``        ``extra_args``, a JSON object; wins over single flags
\\                               ``--any-name value``         ``extra_args``: ``any_name``; the value as JSON, else as text
``NUM_NODES``, ``GPUS_PER_NODE``                             ranks, where no torchrun has started them
``CHECKPOINT_PREFIX``, …        ``--checkpoint-prefix``, …   derived from the others; not read
=============================== ============================ =========================================================
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from hostcore import entrypoint
from hostcore.cli import main as command_line
from hostcore.cli.output import fail
from hostcore.entrypoint import InvalidEnvironment, run_described
from hostcore.job.document import parse_json
from hostcore.job.json_values import checked
from hostcore.service.train.mapping import to_job
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs.errors import HostcoreError

_FLAGS: Final = {
    "--framework": "FRAMEWORK",
    "--model-id": "MODEL_ID",
    "--run-id": "RUN_ID",
    "--checkpoint-base-uri": "CHECKPOINT_BASE_URI",
    "--dataset-uri": "DATASET_URI",
    "--config": "CONFIG_PATH",
    "--resume": "RESUME_FROM_CHECKPOINT",
    "--extra-args-json": "TRAINING_EXTRA_ARGS_JSON",
}
#: What follows from the others.
_DERIVED: Final = frozenset({"--checkpoint-prefix", "--checkpoints-uri", "--logs-uri", "--config-uri"})
_REQUIRED: Final = ("FRAMEWORK", "MODEL_ID", "RUN_ID", "CHECKPOINT_BASE_URI", "DATASET_URI")
_ON: Final = frozenset({"1", "true", "yes", "on"})


@attrs.frozen(kw_only=True)
class DescribedJob:
    """The fields of a request of the unified trainer API, as a container knows them."""

    framework: str
    model_id: str
    run_id: str
    checkpoint_base_uri: str
    dataset_uri: str
    config_path: str | None = None
    resume_from_checkpoint: bool = False
    extra_args: Mapping[str, Any] = attrs.field(factory=dict)
    #: What the container was given already.
    image: None = None
    num_nodes: None = None
    gpus_per_node: None = None
    cpus_per_node: None = None
    memory_per_node_gb: None = None
    namespace: None = None
    job_name: None = None
    env: Mapping[str, str] = attrs.field(factory=dict)
    labels: Mapping[str, str] = attrs.field(factory=dict)
    annotations: Mapping[str, str] = attrs.field(factory=dict)


def described_job(arguments: Sequence[str], environment: Mapping[str, str]) -> DescribedJob:
    """What variables and flags describe.

    :raises InvalidEnvironment: When they do not describe a job; everything that is missing.
    """
    flags, extra_args = _flags(arguments)
    given = {**{name: environment.get(name, "") for name in _FLAGS.values()}, **flags}
    missing = [name for name in _REQUIRED if not given[name]]
    if missing:
        raise InvalidEnvironment(
            f"the variables {', '.join(missing)} say nothing",
            hint="set them, or give their flags (--run-id); or a job file: run job.json",
        )
    extra_args |= _extra_args(given["TRAINING_EXTRA_ARGS_JSON"])
    return DescribedJob(
        framework=given["FRAMEWORK"],
        model_id=given["MODEL_ID"],
        run_id=given["RUN_ID"],
        checkpoint_base_uri=given["CHECKPOINT_BASE_URI"],
        dataset_uri=given["DATASET_URI"],
        config_path=given["CONFIG_PATH"] or None,
        resume_from_checkpoint=given["RESUME_FROM_CHECKPOINT"].strip().lower() in _ON,
        extra_args=extra_args,
    )


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The variables that flags stand for, and what all others say."""
    variables: dict[str, str] = {}
    others: dict[str, Any] = {}
    for flag, value in _pairs(arguments):
        if flag in _FLAGS:
            if value is None and flag != "--resume":
                raise InvalidEnvironment(f"{flag} has no value")
            variables[_FLAGS[flag]] = "1" if value is None else value
        elif flag not in _DERIVED:
            others[flag[2:].replace("-", "_")] = True if value is None else _value(value)
    return variables, others


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Flags and their values; None for a flag without one."""
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--") or flag == "--":
            raise InvalidEnvironment(
                f"{flag!r} is no flag", hint="flags begin with --; or give a command: run job.json"
            )
        if equals:
            yield flag, value
        elif rest and not rest[0].startswith("--"):
            yield flag, rest.pop(0)
        else:
            yield flag, None


def _value(text: str) -> Any:
    """A number, true, … if it reads like one; else the text."""
    try:
        return checked(parse_json(text))
    except HostcoreError:
        return text


def _extra_args(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = checked(parse_json(text))
    except HostcoreError as error:
        raise InvalidEnvironment(f"TRAINING_EXTRA_ARGS_JSON is {error.message}") from error
    if not isinstance(value, dict):
        raise InvalidEnvironment("TRAINING_EXTRA_ARGS_JSON is no JSON object", hint='write {"max_steps": 100}')
    return value


def plan_from(described: DescribedJob, environment: Mapping[str, str], *, world_size: int | None) -> RunPlan:
    """The plan of a described job.

    :param world_size: Ranks, when an engine has started them; else one for each of ``GPUS_PER_NODE``.
    :raises HostcoreError: When the job is invalid.
    """
    document = dict(to_job(described, ("*",)).document)
    gpus = _count(environment, "GPUS_PER_NODE")
    if world_size is None and gpus > 1:
        document.setdefault("devices", [f"cuda:{index}" for index in range(gpus)])
    return make_plan(document, world_size=world_size)


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name) or "1"
    if not text.isdecimal():
        raise InvalidEnvironment(f"{name} is {text!r}, and not a whole number")
    return int(text)


def torchrun(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """The command that starts this container's ranks; None if they were started, or there is only this machine.

    :raises InvalidEnvironment: When the variables of the machines are not set.
    """
    nodes = _count(environment, "NUM_NODES")
    if nodes == 1 or "LOCAL_RANK" in environment:
        return None
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise InvalidEnvironment(f"NUM_NODES is {nodes}, but {', '.join(missing)} are not set")
    return [
        *(sys.executable, "-P", "-m", "torch.distributed.run", f"--nnodes={nodes}"),
        *(f"--nproc-per-node={max(1, _count(environment, 'GPUS_PER_NODE'))}", f"--node-rank={environment['RANK']}"),
        *(f"--master-addr={environment['MASTER_ADDR']}", f"--master-port={environment['MASTER_PORT']}"),
        *("--no-python", sys.executable, "-P", "-m", "hostcore.container", *arguments),
    ]


def main() -> NoReturn:
    """Run it, and end the process with the exit code of ``hostcore run``."""
    arguments = sys.argv[1:]
    if arguments and (not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "-V", "--version")):
        command_line()
        sys.exit(0)
    if os.environ.get("WORKER_MODE") and not arguments:
        entrypoint.main()
    try:
        described = described_job(arguments, os.environ)  # what is wrong is told once, not by every rank
        command = torchrun(arguments, os.environ)
    except HostcoreError as error:
        fail(error, as_json=False)
    if command is not None:
        os.execv(command[0], command)
    run_described(lambda world_size: plan_from(described, os.environ, world_size=world_size))


if __name__ == "__main__":
    main()
