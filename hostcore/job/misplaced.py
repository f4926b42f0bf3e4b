"""Keys at the top of a job that belong into one of its sections."""

from collections.abc import Iterable

from hostcore.job.forms import object_form
from hostcore.job.path_keys import SOURCE_PATHS
from hostcore.job.pointers import tokens
from hostcore.job.sections import dataset_keys
from hostcore.job.spec import JobSpec
from hostcore.job.wording import did_you_mean, near
from hostcore_hookspecs.errors import HostcoreError

_OF_DATA = 'settings of the data are under "dataset"'
_OF_ANY = 'settings of the trainer are under "hyperparams", those of the data under "dataset"'


def point_to_sections(errors: Iterable[HostcoreError]) -> None:
    """Say where a setting belongs that the job itself does not have, in place of listing all keys of a job."""
    for error in errors:
        path = tokens(error.pointer or "")
        if error.code == "key.unknown" and len(path) == 1:
            error.hint = _hint(path[0]) or error.hint


def _hint(name: str) -> str | None:
    """What to say about an unknown key; None if it is rather a key of the job that was mistyped."""
    data_keys = (*dataset_keys(), *SOURCE_PATHS)
    of_job, of_data = near(name, object_form(JobSpec).keys), near(name, data_keys)
    if name in data_keys or (of_data and not of_job):
        return f"{did_you_mean([f'dataset.{key}' for key in of_data])} {_OF_DATA}"
    return None if of_job else f"{did_you_mean([f'hyperparams.{name}'])} {_OF_ANY}"
