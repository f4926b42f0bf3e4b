"""The section of a service's page, in a real browser, at a real service with a token."""

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import recorded_sweep
from browser import chromium, first_tab, open_tab
from command_line import COMMAND
from fork_server import popen

from hostcore_service.store.database import open_database
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

__all__ = ["chromium", "first_tab", "open_tab"]

#: That of ``browser``.
Tab = Any
TOKEN = "a-token-for-the-tests-of-the-page"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service beside whose runs a sweep lies. It has a job of that sweep, and one of another."""
    folder = tmp_path_factory.mktemp("service")
    recorded_sweep.record(folder / "sweeps", recorded_sweep.whole_sweep())
    (folder / "runs").mkdir()
    engine = open_database(f"sqlite:///{folder / 'runs' / '.service' / 'jobs.sqlite'}")
    for run_id, sweep in (("recorded-0003", "recorded"), ("afar-0000", "afar")):
        Jobs(engine).add(ended_job(run_id, sweep))
    engine.dispose()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOSTCORE_", "TRAINER_"))}
    process = popen(
        [COMMAND, "serve", "--port", "0"],
        env={**inherited, "HOSTCORE_RUNS_DIR": str(folder / "runs"), "TRAINER_API_TOKEN": TOKEN},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 300)[0], "the service does not start"
    yield process.stdout.readline().decode().split()[-1]
    process.terminate()
    process.wait(300)


def ended_job(run_id: str, sweep: str) -> StoredJob:
    labels = {"sweep": sweep, "trial": "0"}
    job = {"run_id": run_id, "trainer": "quadratic", "max_steps": 40, "labels": labels, "terminal": False}
    return StoredJob(
        run_id=run_id,
        name=run_id,
        job=job,
        trainer="quadratic",
        launcher="hostcore-builtin-plugins/local",
        principal="token",
        route="jobs",
        phase="ended",
        status="succeeded",
        launch_id=run_id,
        submitted_ms=recorded_sweep.BEGUN_MS,
        updated_ms=recorded_sweep.BEGUN_MS,
    )


@pytest.fixture
def visit(open_tab: Callable[..., Tab], service: str) -> Callable[..., Tab]:
    """``visit("#/sweeps")``: a page of the service, after the token was entered."""

    def go(page: str, **how: Any) -> Tab:
        tab = open_tab(f"{service}/{page}", **how)
        tab.until("document.getElementById('token-dialog').open")
        tab.enter("#token-field", TOKEN)
        tab.js("document.querySelector('#token-dialog button').click()")
        tab.until("document.querySelector('main table tbody tr') !== null")
        return tab

    return go


def test_all_sweeps_are_shown_also_those_that_are_driven_elsewhere(visit: Callable[..., Tab]) -> None:
    tab = visit("#/sweeps")
    told = tab.js("document.querySelector('main').textContent")
    assert "24 of 24 trials" in told
    assert "0.0245191 by trial 3" in told
    assert tab.js("document.querySelector('[aria-label=\"Driven elsewhere\"] a').textContent") == "afar"
    assert tab.js("document.querySelector('nav [aria-current]').textContent") == "Sweeps"


def test_a_sweep_has_its_pictures_and_links_to_the_jobs_of_its_trials(visit: Callable[..., Tab]) -> None:
    tab = visit("#/sweeps")
    tab.js("document.querySelector('main tbody a').click()")
    tab.until("document.querySelectorAll('.plot svg.trials').length === 3")
    assert tab.js("document.querySelectorAll('.plot svg.trials path[data-trial]').length") > 60
    links = tab.js("[...document.querySelectorAll('[aria-label=Trials] a')].map((one) => one.hash)")
    assert links == ["#/jobs/recorded-0003"]  # the service has no other
    assert tab.js("document.querySelector('nav [aria-current]').textContent") == "Sweeps"
    refused = [one for one in tab.complaints() if "401" not in str(one)]  # before the token was entered
    assert refused == []


def test_the_report_can_be_downloaded_with_the_token(visit: Callable[..., Tab], service: str) -> None:
    tab = visit("#/sweeps/recorded")
    tab.until("document.querySelector('a[download]') !== null")
    assert tab.js("document.querySelector('a[download]').download") == "recorded.html"
    tab.js("document.querySelector('a[download]').click()")
    tab.until("document.querySelector('a[download]').getAttribute('aria-busy') === null")
    assert f"{service}/v1/sweeps/recorded/report" in tab.requests()
    assert tab.js("document.querySelector('.banner').textContent") == ""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read_in_any_window(visit: Callable[..., Tab], *, dark: bool) -> None:
    tab = visit("#/sweeps/recorded", dark=dark, width=400)
    tab.until("document.querySelectorAll('.plot svg.trials').length === 3")
    assert tab.lowest_contrast() >= 4.5
    assert tab.js("document.documentElement.scrollWidth") <= 400
