"""Visibility of a job's run directory from the service."""

from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.launch import Launch
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.planning import directory_of
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob


class NotVisible(HostcoreError):
    """The requested data lies in a run directory that is not seen from here."""

    code = "run.unseen"


def is_visible(job: StoredJob, settings: Settings) -> bool:
    """Return whether a job's runs write into the run directory of the service; true while nothing runs it."""
    try:
        launch = Launch.read(directory_of(job, settings).launch)
    except (CorruptDocument, UnreadableDocument):
        return True
    return launch is None or launch.sees_run_dir
