"""``hostcore list --server``."""

from collections.abc import Sequence
from itertools import islice

from hostcore.cli.remote.client import Client
from hostcore.cli.remote.jobs import RemoteJobs
from hostcore.cli.run_lines import is_of, print_runs


def list_remote(server: str, *, statuses: Sequence[str], trainer: str | None, limit: int | None, as_json: bool) -> None:
    """List the jobs of a service as the runs of this machine are listed."""
    with Client.of(server) as client:
        jobs = RemoteJobs(client).newest_first(statuses=statuses)
        wanted = list(islice((job.summary for job in jobs if is_of(job.summary, trainer)), limit))
        chosen = bool(statuses or trainer)
        print_runs(wanted, as_json=as_json, nothing=f"no runs at {client.url}{' are like that' if chosen else ''}")
