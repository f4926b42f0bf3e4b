"""``hostcore cancel --server``."""

from typing import Final

from hostcore.cli.cancellation import Waiting, report_cancellation
from hostcore.cli.remote.client import Client
from hostcore.cli.remote.jobs import RemoteJobs
from hostcore.cli.remote.telling import report_remote_result
from hostcore.supervisor.cancelling import Cancellation

_LOOK_SECONDS: Final = 0.5


def cancel_remote(server: str, run: str, *, reason: str, wait: bool, as_json: bool) -> None:
    """Cancel a job of a service. One that has ended stays as it is."""
    with Client.of(server) as client:
        jobs = RemoteJobs(client)
        job = jobs.find(run)
        requested = not job.is_over
        if requested:
            job = jobs.cancel(job.run_id, reason)
            with Waiting(job.run_id) as waiting:
                while wait and not job.is_over:
                    waiting.show(job.summary)
                    client.sleep(_LOOK_SECONDS)
                    job = jobs.look_patiently(job.run_id)
        done = Cancellation(
            run_id=job.run_id,
            status=job.status,
            attempt=job.attempt,
            requested=requested,
            result=jobs.result(job) if job.is_over else None,
        )
        report_cancellation(
            done,
            lambda result, note: report_remote_result(result, client.url, as_json=False, note=note),
            waited=wait,
            as_json=as_json,
        )
