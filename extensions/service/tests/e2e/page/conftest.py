"""A service with jobs to look at, and its page in a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from browser import chromium, first_tab, open_tab
from served import TOKEN, Server, install, server_in

from hostcore_service.store.database import open_database
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

__all__ = ["chromium", "first_tab", "open_tab"]

#: What takes a page over if it ever becomes markup.
MARKUP = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"

#: It waits at a step until a file is there, so that a test can look at a job that is under way.
TRAINER = f"""
import math, time
from pathlib import Path
from hostcore_hookspecs import Capabilities, StepResult

class Trainer:
    CAPABILITIES = Capabilities(distributed=True)
    def setup(self, ctx):
        print(f"hello from rank {{ctx.rank}}: <b>bold</b> \\x1b[31mred\\x1b[0m", flush=True)
    def configure(self): return {{}}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, ctx):
        step = ctx.run_state.step + 1
        if step == ctx.hyperparams.get("fail_at") and ctx.rank == ctx.world_size - 1:
            raise ValueError({MARKUP!r} + "\\nthe second line of two")
        if step == ctx.hyperparams.get("wait_at"):
            print(f"waiting at step {{step}}", flush=True)
            go_on = Path({{here!r}}, "go-on-" + ctx.job.run_id)
            while not go_on.exists() and not ctx.is_canceled():
                time.sleep(0.02)
        return StepResult(metrics={{"loss": 4 / step, "wave": math.sin(step * step), {MARKUP!r}: 1.0}})
    def validate_step(self, ctx): return StepResult(metrics={{"loss": 5 / max(ctx.run_state.step, 1)}})
    def state_dict(self): return {{}}
    def load_state_dict(self): pass
"""


def paced(run_id: str, **keys: Any) -> dict[str, Any]:
    """A job of the trainer of the tests."""
    usual = {
        "trainer": "paced",
        "devices": ["cpu"],
        "terminal": False,
        "mock_batches": [1, 2, 3, 4],
        "max_steps": 60,
        "metric_every": 1,
        "checkpoint_every": 20,
    }
    return {"run_id": run_id, **usual, **keys}


@attrs.define(kw_only=True, eq=False)
class Service(Server):
    """One whose jobs wait for the tests."""

    def ask(self, path: str, body: Any = None) -> Any:
        answer = self.request("GET" if body is None else "POST", path, json=body)
        assert answer.status < 400, answer.body
        return answer.json

    def submit(self, run_id: str, **keys: Any) -> None:  # type: ignore[override]
        self.ask("/v1/jobs", paced(run_id, **keys))

    def let_go(self, run_id: str) -> None:
        """A job that waits goes on."""
        (self.folder / f"go-on-{run_id}").touch()


def started(folder: Path, token: str | None = None) -> Service:
    """A service that has the trainer, with the folder of its site beside its runs."""
    operator = "[http]\nrequests_per_minute = 0\n[service]\npoll_seconds = 0.2\n"
    made: Service = server_in(folder, folder / "site", operator, token=token, kind=Service)
    made.start()
    return made


def add_old_jobs(runs: Path, number: int) -> None:
    """Jobs that ended long ago: in the database alone."""
    runs.mkdir(parents=True)
    engine = open_database(f"sqlite:///{runs / '.service' / 'jobs.sqlite'}")
    for each in range(number):
        run_id, submitted_ms = f"old-{each:03}", 1_700_000_000_000 + each
        Jobs(engine).add(
            StoredJob(
                run_id=run_id,
                name=run_id,
                job=paced(run_id),
                trainer="paced",
                launcher="hostcore-builtin-plugins/local",
                principal="anonymous",
                route="jobs",
                phase="ended",
                status="cancelled",
                launch_id=run_id,
                submitted_ms=submitted_ms,
                updated_ms=submitted_ms,
            )
        )
    engine.dispose()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One without a token, with jobs that have ended; ``under-way`` waits at step 30, on two ranks."""
    folder = tmp_path_factory.mktemp("service")
    module = folder / "paced_trainer.py"
    module.write_text(TRAINER.replace("{here!r}", repr(str(folder))))
    install(folder / "site", "paced-trainer", [module], {"hostcore.trainers": {"paced": "paced_trainer:Trainer"}})
    add_old_jobs(folder / "runs", 60)
    made = started(folder)
    try:
        submit_all(made)
        yield made
    finally:
        made.clean_up()


def submit_all(service: Service) -> None:
    mock, ranks = {"source": "mock", "num_rows": 4, "batch_size": 2}, ["cpu", "cpu"]
    service.submit("finished", validation=mock, validate_every=20, labels={"team": MARKUP[:60]}, owner="ada")
    service.submit("failed", hyperparams={"fail_at": 45}, devices=ranks)
    service.submit("under-way", hyperparams={"wait_at": 31}, max_steps=100, devices=ranks)
    service.wait_for("finished", "succeeded")
    service.wait_for("failed", "failed")
    service.wait_for("under-way", "running", step=20)


@pytest.fixture
def closed_service(tmp_path: Path) -> Iterator[Service]:
    """One with a token, without jobs."""
    made = started(tmp_path, TOKEN)
    yield made
    made.clean_up()


#: On each page, what is there once it has loaded.
READY = {
    "#/jobs": "document.querySelector('.jobs tbody tr')",
    "#/jobs/": "document.querySelector('dl dt') && document.querySelector('.plot desc')",
    "#/plugins": "document.querySelector('main table tbody tr')",
    "#/submit": "document.querySelector('textarea')",
}


@pytest.fixture
def visit(open_tab: Any, service: Service) -> Callable[..., Any]:
    """``visit("#/jobs", dark=True)``: a page of the service, loaded."""

    def go(page: str = "#/jobs", **how: Any) -> Any:
        tab = open_tab(f"{service.url}/{page}", **how)
        kind = page.partition("?")[0]
        tab.until(f"!!({READY['#/jobs/' if kind.startswith('#/jobs/') else kind]})")
        return tab

    return go
