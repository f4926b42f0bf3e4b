"""Checking a job as ``hostcore run`` would, short of starting it: the worker's start-up, and no run directory."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostcore.runs.channel import errors_of_content
from hostcore.runs.contract import WorkerContract
from hostcore.runs.record import RunRecord
from hostcore.supervisor.ending import tail
from hostcore.supervisor.opening import named_checkpoint
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.spawn import WorkerProcess
from hostcore_hookspecs.errors import HostcoreError


class CheckFailed(HostcoreError):
    """The worker died while it checked a job."""

    code = "worker.died"


def check_job(plan: RunPlan) -> Mapping[str, Any]:
    """Have a worker check a job: import its plugins, structure their settings, open its data, try its device.

    :return: What the worker found: ``device``, ``total_steps``, ``num_rows``, …
    :raises Errors: Everything that is wrong with the job.
    :raises CheckFailed: When the worker dies of it.
    """
    with tempfile.TemporaryDirectory(prefix="hostcore-check-") as folder:
        place = Path(folder)
        record, contract, output = place / "run.json", place / "contract.json", place / "worker.log"
        RunRecord(job=plan.spec.to_json(), job_dir=str(plan.job_dir)).write(record)
        WorkerContract(
            trainer_plugin=plan.spec.trainer,
            job_spec_path=str(record),
            checkpoints_dir=str(place),
            samples_dir=str(place),
            events_path=str(place / "events.jsonl"),
            run_dir=folder,
            start_from=named_checkpoint(plan.spec) or "",
        ).write(contract)
        worker = WorkerProcess(contract, output, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"})
        try:
            kind, content = worker.channel.receive()
        except EOFError:
            raise CheckFailed(
                f"the worker {worker.wait()} while it checked the job", hint=tail(output) or None
            ) from None
        finally:
            worker.kill()  # it has said all there is to say; a thread that a plugin started could keep it
            worker.wait()
            worker.channel.close()
    if kind == "invalid":
        raise errors_of_content(content)
    checked: Mapping[str, Any] = content
    return checked
