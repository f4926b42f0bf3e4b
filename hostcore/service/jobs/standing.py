"""Everything that is known of a run, as ``hostcore status --json`` prints it."""

from typing import Any

from hostcore.events.codec import CorruptLog
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.summary import UnknownRun
from hostcore.scrubbing import scrubbed
from hostcore.service.guard.server_paths import all_without_places
from hostcore.service.jobs.histories import Histories
from hostcore.service.planning import directory_of
from hostcore.service.settings import Settings
from hostcore.service.store.job import StoredJob
from hostcore.supervisor.standing import look
from hostcore_hookspecs.launcher import LaunchStatus


def standing_of(job: StoredJob, settings: Settings, histories: Histories) -> dict[str, Any] | None:
    """How the run of a job stands; None while there is nothing of it, or it cannot be read."""
    directory = directory_of(job, settings)
    told = LaunchStatus(status=job.status, message=job.detail)  # the dispatcher has asked its launcher
    try:
        with histories.of(directory) as history:
            found = look(directory, history, told=told, checkpoints=directory.checkpoints)
            standing: dict[str, Any] = scrubbed(found.as_dict())
    except (UnknownRun, CorruptDocument, UnreadableDocument, CorruptLog):
        return None
    standing.pop("directory", None)  # a place of the service's machine
    shown: dict[str, Any] = all_without_places(standing)
    return shown
