"""``python -m hostcore.entrypoint``: a run described by environment variables, for containers made for other hosts.

A thin translation into the same run as ``hostcore run``. An empty variable counts as unset.

=============================== ======================================================================================
``WORKER_MODE``                 must be ``trainer``
``TRAINER_JOB_SPEC_PATH``       the job file; default ``/app/.cozy/trainer_job.json``
``TRAINER_PLUGIN``              the trainer; wins over the job's
``TRAINER_ARTIFACTS_DIR``       the folder of all runs, in place of ``HOSTCORE_RUNS_DIR``
``TRAINER_CHECKPOINTS_DIR``     where checkpoints go, in place of the run directory's ``checkpoints``
``TRAINER_SAMPLES_DIR``         where generated samples go, in place of the run directory's ``samples``
``TRAINER_METRICS_DIR``         adds the ``jsonl`` reporter, writing ``events.jsonl`` there
``TRAINER_EVENTS_PATH``         adds the ``jsonl`` reporter, writing there; wins over ``TRAINER_METRICS_DIR``
``TRAINER_MAX_RUNTIME_SECONDS`` ``max_runtime_seconds``; wins over the job's
=============================== ======================================================================================
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import attrs

from hostcore.cli.follow import start_and_follow
from hostcore.cli.output import fail
from hostcore.cli.redacting_stream import hide_secrets, open_closed_streams
from hostcore.cli.run_client import RunRequest
from hostcore.cli.starting import start_planned
from hostcore.job.sections import DeliveryUse
from hostcore.runs.directory import runs_dir
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs.errors import HostcoreError

DEFAULT_JOB = "/app/.cozy/trainer_job.json"
JSONL = "hostcore-builtin-plugins/jsonl"

#: Variables of the original with no meaning here yet: setting one must not be passed over in silence.
_UNSUPPORTED = (
    "TRAINER_CANCELLED",
    "TRAINER_CANCEL_FILE",
    "TRAINER_CAPABILITY_TOKEN",
    "TRAINER_ORCHESTRATED",
    "TRAINER_UPLOAD_CHECKPOINT_URL",
    "TRAINER_UPLOAD_METRICS_URL",
    "TRAINER_UPLOAD_SAMPLE_URL",
    "TRAINER_UPLOAD_TERMINAL_URL",
)
_OFF = frozenset({"", "0", "false", "f", "no", "n"})


class InvalidEnvironment(HostcoreError):
    """The environment variables do not describe a run."""

    code = "environment.invalid"


def plan_from_environment(environment: Mapping[str, str], *, world_size: int | None = None) -> RunPlan:
    """The plan that environment variables describe.

    :param world_size: Ranks, when an engine has started them.
    :raises HostcoreError: When they do not, or the job is invalid.
    """
    mode = environment.get("WORKER_MODE", "").strip().lower()
    if mode != "trainer":
        raise InvalidEnvironment(
            f"WORKER_MODE is {environment.get('WORKER_MODE', '')!r}; hostcore only trains",
            hint="set WORKER_MODE=trainer",
        )
    for name in _UNSUPPORTED:
        if environment.get(name, "").strip().lower() not in _OFF:
            raise InvalidEnvironment(
                f"{name} is set, but this version of hostcore does not act on it", hint=f"unset {name}"
            )
    trainer, seconds = environment.get("TRAINER_PLUGIN"), environment.get("TRAINER_MAX_RUNTIME_SECONDS")
    names = {f"trainer={json.dumps(trainer)}": "$TRAINER_PLUGIN"} if trainer else {}
    names |= {f"max_runtime_seconds={seconds}": "$TRAINER_MAX_RUNTIME_SECONDS"} if seconds else {}
    plan = make_plan(
        Path(environment.get("TRAINER_JOB_SPEC_PATH") or DEFAULT_JOB),
        overrides=list(names),
        override_names=names,
        extra_reporters=_reporters(environment),
        runs=_folder(environment, "TRAINER_ARTIFACTS_DIR"),
        world_size=world_size,
    )
    return attrs.evolve(
        plan,
        checkpoints_dir=_folder(environment, "TRAINER_CHECKPOINTS_DIR") or plan.checkpoints_dir,
        samples_dir=_folder(environment, "TRAINER_SAMPLES_DIR") or plan.samples_dir,
    )


def _folder(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name)
    return Path(value).absolute() if value else None


def _reporters(environment: Mapping[str, str]) -> tuple[DeliveryUse, ...]:
    metrics = _folder(environment, "TRAINER_METRICS_DIR")
    path = _folder(environment, "TRAINER_EVENTS_PATH") or (metrics and metrics / "events.jsonl")
    return (DeliveryUse(use=JSONL, settings={"path": str(path)}),) if path else ()


def run_described(
    plan: Callable[[int | None], RunPlan],
    *,
    runs: Path | None = None,
    as_said: Callable[[HostcoreError], HostcoreError] = lambda error: error,
) -> NoReturn:
    """Run what the surroundings of this process describe, and end it with the exit code of ``hostcore run``.

    :param plan: Makes the plan, given the number of ranks that an engine has started; None if none has.
    :param runs: The folder of all runs; None for the usual one.
    :param as_said: Turns an error of the job into one of what has described it.
    """
    open_closed_streams()
    hide_secrets()
    try:
        start_and_follow(lambda interrupts: start_planned(plan, RunRequest(here=True), interrupts, runs or runs_dir()))
    except HostcoreError as error:
        fail(as_said(error), as_json=False)


def main() -> NoReturn:
    """Run it, and end the process with the exit code of ``hostcore run``."""
    run_described(
        lambda world_size: plan_from_environment(os.environ, world_size=world_size),
        runs=_folder(os.environ, "TRAINER_ARTIFACTS_DIR"),
    )


if __name__ == "__main__":
    main()
