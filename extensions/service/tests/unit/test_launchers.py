"""Which launcher a job has, and what it is set up with: whatever stands in the database, the operator says so."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.plugins.installed import Discovered
from hostcore.supervisor.opening import RunConflict
from hostcore_service.guard.refusal import NotAllowed
from hostcore_service.launchers import warn_of_shared_database
from hostcore_service.planning import launcher_for, plan_stored_job
from hostcore_service.settings import Settings

Serve = Callable[..., Settings]


def test_a_row_chooses_a_launcher_and_nothing_of_its_settings(
    service_here: Serve, installed: Discovered, a_job: Callable[..., Any]
) -> None:
    settings = service_here(launchers={"flaky": {"times": 2}})
    job = a_job(launcher="flaky", settings={"times": 7, "kubeconfig": "/of/somebody/else"})

    assert plan_stored_job(job, settings, installed).spec.launcher.settings == {"times": 2}


def test_a_launcher_that_is_not_the_operators_any_more_is_refused(
    service_here: Serve, installed: Discovered, a_job: Callable[..., Any]
) -> None:
    settings = service_here(launchers={})
    for ask in (launcher_for, plan_stored_job):
        with pytest.raises(Exception, match="'flaky' is not one of this service's: instant") as caught:
            ask(a_job(launcher="flaky"), settings, installed)
        assert [type(one) for one in caught.value.errors] == [NotAllowed]


def test_nothing_is_launched_whose_run_directory_leads_elsewhere(
    service_here: Serve, installed: Discovered, a_job: Callable[..., Any]
) -> None:
    """An earlier attempt could write it: the record of the next one would come to lie where the job wants it."""
    settings = service_here()
    directory = settings.runs / "a"
    directory.mkdir(parents=True)
    plan_stored_job(a_job(), settings, installed)
    (directory / "config").symlink_to(settings.runs)
    with pytest.raises(RunConflict, match="a link in place of the folder config"):
        plan_stored_job(a_job(), settings, installed)


@pytest.mark.parametrize(
    ("sections", "warned"),
    [
        ({"launcher": "local"}, []),
        ({"launcher": "broken"}, ["broken"]),
        ({"launcher": "local", "launchers": {"slow": {}}}, ["slow"]),
        ({"launcher": "broken", "service": {"database": "sqlite:////elsewhere/jobs.sqlite"}}, []),
        ({"launcher": "broken", "service": {"database": "postgresql+psycopg://x/y"}}, []),
    ],
)
def test_a_database_that_is_shared_with_jobs_elsewhere_is_told(
    service_here: Serve,
    installed: Discovered,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    sections: dict[str, Any],
    warned: list[str],
) -> None:
    settings = service_here(**{"launchers": {}, **sections})
    with caplog.at_level(logging.WARNING):
        warn_of_shared_database(settings, installed)

    told = [one.getMessage().partition(f"{tmp_path}/runs, which is shared with what ")[2] for one in caplog.records]
    # A thread of an earlier test may have something else to say.
    assert [text.partition(" starts: ")[0] for text in told if text] == warned
