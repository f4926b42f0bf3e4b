r"""``python -m hostcore_service.container``: the command of the image's containers.

================================ =====================================================================================
a command is given               ``docker run IMAGE run job.json``: the arguments of the ``hostcore`` command
``WORKER_MODE`` is set           a run as :mod:`hostcore.entrypoint` describes it
otherwise                        a run in the words of the unified trainer API, below
================================ =====================================================================================

In the words of the unified trainer API, a job is described by variables, or by the flags of its ``train.py``. A flag
wins, of a repeated one the last. An empty variable counts as unset. What they mean for the job is what ``POST /train``
makes of the same fields.

============================= =========================== ============================================================
variable                      flag                        field
============================= =========================== ============================================================
``FRAMEWORK``                 ``--framework``             ``framework``: the trainer plugin
``MODEL_ID``                  ``--model-id``              ``model_id``
``RUN_ID``                    ``--run-id``                ``run_id``
``CHECKPOINT_BASE_URI``       ``--checkpoint-base-uri``   ``checkpoint_base_uri``
``DATASET_URI``               ``--dataset-uri``           ``dataset_uri``
``CONFIG_PATH``               ``--config``                ``config_path``
``RESUME_FROM_CHECKPOINT``    ``--resume``                ``resume_from_checkpoint``: ``1``, ``true``; ``0``, ``false``
``TRAINING_EXTRA_ARGS_JSON``  ``--extra-args-json``       ``extra_args``, a JSON object; wins over single flags
\                             ``--any-name value``        ``extra_args``: ``any_name``; the value as JSON, else as
                                                          text; without a value ``true``
``NUM_NODES``, \              \                           how many ranks: see below
``GPUS_PER_NODE``
``CHECKPOINT_PREFIX``, \      ``--checkpoint-prefix``, …  follow from the others, and are not read
``CHECKPOINTS_URI``, …
============================= =========================== ============================================================

Ranks that torchrun has started (``LOCAL_RANK`` is set) are adopted. With ``NUM_NODES`` above 1, or ``PET_NNODES``,
torchrun is started: ``RANK`` is the number of this machine, and ``MASTER_ADDR`` and ``MASTER_PORT`` are their
meeting point, as Kubeflow's operators set them. On one machine there is a rank for each of ``GPUS_PER_NODE``.
meet, as Kubeflow's operators set them. On one machine there is a rank for each of ``GPUS_PER_NODE``.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from hostcore import entrypoint
from hostcore.cli import main as command_line
from hostcore.cli.output import fail
from hostcore.entrypoint import InvalidEnvironment, run_described
from hostcore.errors import Errors, all_errors
from hostcore.job.formats import parse_json
from hostcore.job.json_values import checked
from hostcore.job.pointers import escaped
from hostcore.plugins.installed import discover
from hostcore.supervisor.engine_ranks import installed_engine_ranks
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.descriptions import Descriptions
from hostcore_service.train.mapping import MappedJob, to_job
from hostcore_service.train.request import TrainingJobRequest, read_request

#: The field of each flag, and the variable with the same meaning.
_FLAGS: Final = {
    "--framework": ("framework", "FRAMEWORK"),
    "--model-id": ("model_id", "MODEL_ID"),
    "--run-id": ("run_id", "RUN_ID"),
    "--checkpoint-base-uri": ("checkpoint_base_uri", "CHECKPOINT_BASE_URI"),
    "--dataset-uri": ("dataset_uri", "DATASET_URI"),
    "--config": ("config_path", "CONFIG_PATH"),
    "--resume": ("resume_from_checkpoint", "RESUME_FROM_CHECKPOINT"),
    "--extra-args-json": ("extra_args", "TRAINING_EXTRA_ARGS_JSON"),
}
#: What follows from the others.
_DERIVED: Final = frozenset({"--checkpoint-prefix", "--checkpoints-uri", "--logs-uri", "--config-uri"})
_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})


@attrs.frozen(kw_only=True)
class Described:
    """A job, and what has described it."""

    job: MappedJob
    #: Variables and flags, by the place in the request that they set.
    sources: Mapping[str, str]

    def as_said(self, error: HostcoreError) -> HostcoreError:
        """The same error, which names variables and flags instead of places in the job that was made of them."""
        errors = []
        for one in all_errors(error):
            place = one.pointer
            [said] = self.job.as_said(one)
            if place and not said.pointer:  # the pointer is at nothing from the request
                said.pointer = place
            errors.append(_named(said, {**self.sources, "/devices": "GPUS_PER_NODE"}))
        return Errors(errors)


def described_job(arguments: Sequence[str], environment: Mapping[str, str]) -> Described:
    """Return the job that variables and flags describe.

    :raises HostcoreError: Everything that is missing or wrong, by the names of variables and flags.
    """
    flags, extra_args, sources = _flags(arguments)
    fields: dict[str, Any] = {}
    for flag, (field, variable) in _FLAGS.items():
        if flag in flags or environment.get(variable):
            fields[field] = flags.get(flag, environment.get(variable))
            sources[f"/{field}"] = flag if flag in flags else variable
    if missing := [variable for field, variable in _required() if field not in fields]:
        raise InvalidEnvironment(
            f"no job is described: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint="set them, or give their flags (--run-id); or give a command: run job.json",
        )
    if (resume := fields.get("resume_from_checkpoint")) is not None:
        fields["resume_from_checkpoint"] = _boolean(resume, sources["/resume_from_checkpoint"])
    if "extra_args" in fields:
        said_by = sources.pop("/extra_args")
        given = _object(fields["extra_args"], said_by)
        extra_args |= given
        sources |= {f"/extra_args/{escaped(name)}": f"{said_by}: {name}" for name in given}
    try:
        request = read_request({**fields, "extra_args": extra_args})
        return Described(job=to_job(request, ("*",)), sources=sources)
    except HostcoreError as error:
        raise Errors([_named(one, sources) for one in all_errors(error)]) from error


def _required() -> list[tuple[str, str]]:
    required = {one.name for one in attrs.fields(TrainingJobRequest) if one.default is attrs.NOTHING}
    return [(field, variable) for field, variable in _FLAGS.values() if field in required]


def _named(error: HostcoreError, sources: Mapping[str, str]) -> HostcoreError:
    """An error of a request, with the variable or flag in place of its pointer."""
    pointer = error.pointer or ""
    known = [place for place in sources if pointer == place or pointer.startswith(f"{place}/")]
    if known:
        place = max(known, key=len)
        error.message = f"{sources[place]}{pointer.removeprefix(place)}: {error.message}"
        error.pointer = None
    return error


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
    """Return the values of known flags, the extra arguments, and the flag behind each place in the request."""
    known: dict[str, str] = {}
    extra_args: dict[str, Any] = {}
    sources: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--") or flag == "--":
            raise InvalidEnvironment(
                f"{flag!r} is no flag", hint="flags begin with --; or give a command: run job.json"
            )
        has_value = bool(equals)
        if not has_value and rest and not rest[0].startswith("--"):
            has_value, value = True, rest.pop(0)
        if flag in _FLAGS:
            if not has_value and flag != "--resume":
                raise InvalidEnvironment(f"{flag} has no value")
            known[flag] = value if has_value else "true"
        elif flag not in _DERIVED:
            name = flag[2:].replace("-", "_")
            extra_args[name] = _value(value) if has_value else True
            sources[f"/extra_args/{escaped(name)}"] = flag
    return known, extra_args, sources


def _value(text: str) -> Any:
    """A number, true, … if it reads like one; else the text."""
    try:
        return checked(parse_json(text))
    except HostcoreError:
        return text


def _boolean(text: str, said_by: str) -> bool:
    word = text.strip().lower()
    if word not in _ON | _OFF:
        raise InvalidEnvironment(f"{said_by} is {text!r}, and neither 1 nor 0")
    return word in _ON


def _object(text: str, said_by: str) -> dict[str, Any]:
    try:
        value = checked(parse_json(text))
    except HostcoreError as error:
        told = "; ".join(f"{one.pointer or ''} {one.message}".strip() for one in all_errors(error))
        raise InvalidEnvironment(f"{said_by}: {told}", hint='write {"max_steps": 100}') from error
    if not isinstance(value, dict):
        raise InvalidEnvironment(f"{said_by} is no JSON object", hint='write {"max_steps": 100}')
    return value


def plan_described_job(
    described: Described, environment: Mapping[str, str], *, world_size: int | None, descriptions: Descriptions
) -> RunPlan:
    """The plan of a described job.

    :param world_size: Ranks, when an engine has started them; else one for each of ``GPUS_PER_NODE``.
    :param descriptions: Knows whether the trainer takes ``model_id``.
    :raises HostcoreError: When the job is invalid.
    """
    trainer = described.job.document["trainer"]
    takes = descriptions.takes_model_id(trainer)
    job = described.job if takes else described.job.without_model_id()
    if "config_path" in job.document["hyperparams"]:
        names = descriptions.hyperparams(trainer)
        job = job if names is None or "config_path" in names else job.without_config_path()
    document = dict(job.document)
    gpus = _count(environment, "GPUS_PER_NODE")
    if world_size is None and gpus > 1 and not {"device", "devices"} & document.keys():
        document["devices"] = [f"cuda:{index}" for index in range(gpus)]
    return make_plan(document, world_size=world_size)


def torchrun(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """The command that starts this machine's ranks; None if they were started, or there is only this machine.

    :raises InvalidEnvironment: When the variables of the machines are not set.
    :raises NoEngineRanks: When the image lacks ``hostcore-engines``.
    """
    nodes = _count(environment, "NUM_NODES", "PET_NNODES")
    if nodes <= 1 or "LOCAL_RANK" in environment:
        return None
    places = [("PET_NODE_RANK", "RANK"), ("PET_MASTER_ADDR", "MASTER_ADDR"), ("PET_MASTER_PORT", "MASTER_PORT")]
    rank, address, port = (environment.get(pet) or environment.get(plain) for pet, plain in places)
    if not (rank and address and port):
        missing = [plain for pet, plain in places if not environment.get(pet) and not environment.get(plain)]
        raise InvalidEnvironment(
            f"there are {nodes} machines, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint="Kubeflow's operators set them; or start the ranks with torchrun; or NUM_NODES=1",
        )
    installed_engine_ranks(discover())
    return [
        *(sys.executable, "-P", "-m", "torch.distributed.run", f"--nnodes={nodes}"),
        *(f"--nproc-per-node={max(1, _count(environment, 'GPUS_PER_NODE', 'PET_NPROC_PER_NODE'))}",),
        *(f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}"),
        *("--no-python", sys.executable, "-P", "-m", "hostcore_service.container"),
        *(one.replace("$", "$$") for one in arguments),  # torchrun makes one $ of two
    ]


def _count(environment: Mapping[str, str], *names: str) -> int:
    """The first of some variables that is set; 1 if none is."""
    name = next((name for name in names if environment.get(name)), None)
    if name is None:
        return 1
    if not (environment[name].isascii() and environment[name].isdecimal()):
        raise InvalidEnvironment(f"{name} is {environment[name]!r}, and not a whole number")
    return int(environment[name])


def forget_machines(environment: MutableMapping[str, str]) -> None:
    """Without a torchrun, ``RANK`` is the number of a machine: no rank that an engine has started."""
    if "LOCAL_RANK" not in environment:
        for name in ("RANK", "WORLD_SIZE"):
            environment.pop(name, None)


def main() -> NoReturn:
    """Run it, and end the process with the exit code of ``hostcore run``."""
    arguments = sys.argv[1:]
    if arguments and (not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "-V", "--version")):
        command_line()
        sys.exit(0)
    if os.environ.get("WORKER_MODE") and not arguments:
        entrypoint.main()
    try:
        described = described_job(arguments, os.environ)  # errors are reported before any rank is started
        command = torchrun(arguments, os.environ)
    except HostcoreError as error:
        fail(error, as_json=False)
    if command is not None:
        os.execv(command[0], command)  # noqa: S606 - torchrun takes the place of this process, and its signals
    forget_machines(os.environ)
    descriptions = Descriptions(Path.cwd())
    run_described(
        lambda world_size: plan_described_job(described, os.environ, world_size=world_size, descriptions=descriptions),
        as_said=described.as_said,
    )


if __name__ == "__main__":
    main()
