"""Whether the run directory of a job is seen from here."""

from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.launch import Launch
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.planning import directory_of
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob


class NotVisible(HostcoreError):
    """What was asked for lies in a run directory that is not seen from here."""

    code = "run.unseen"


def is_visible(job: StoredJob, settings: Settings) -> bool:
    """Whether what runs a job writes into the run directory that is here. It is taken to while nothing runs it."""
    try:
        launch = Launch.read(directory_of(job, settings).launch)
    except (CorruptDocument, UnreadableDocument):
        return True
    return launch is None or launch.sees_run_dir
