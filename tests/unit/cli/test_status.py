"""``hostcore status``."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from hostcore.checkpoints.commit import commit
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import Metrics, Progress, RunStarted, RunSubmitted, Validation

RUN_KEYS = ["run_id", "status", "trainer", "step", "max_steps", "attempt", "submitted_ms", "ended_ms"]
ERROR_KEYS = ["code", "message", "pointer", "file", "hint"]
SUBMITTED = RunSubmitted(trainer="mine", max_steps=2000, total_steps=2000)


def write_checkpoints(directory: RunDirectory, *steps: int) -> None:
    for step in steps:
        commit(
            directory.checkpoints,
            step=step,
            epoch=1,
            final=step == steps[-1],
            attempt=1,
            fill=lambda folder: (folder / "host.json").write_text("{}"),
        )


class TestTheDocument:
    def test_begins_with_the_documented_keys(self, hostcore: Callable, run: Callable) -> None:
        directory = run("a", status="succeeded")
        write_checkpoints(directory, 500, 1500)
        said = hostcore("status", "a", "--json")
        assert said.code == 0
        assert list(said.json)[: len(RUN_KEYS) + 2] == [*RUN_KEYS, "metrics", "checkpoints"]
        assert said.json["metrics"] == {"train/loss": 0.5, "grad": None}
        steps = [(one["step"], one["epoch"], one["final"], one["bytes"]) for one in said.json["checkpoints"]]
        assert steps == [(500, 1, False, 2), (1500, 1, True, 2)]
        assert all(Path(one["path"]).is_dir() for one in said.json["checkpoints"])

    def test_of_a_running_run_has_what_was_measured_last(
        self, hostcore: Callable, run: Callable, tell: Callable
    ) -> None:
        directory = run("a")
        tell(
            directory,
            (None, SUBMITTED),
            (0, RunStarted(device="cpu")),
            (10, Metrics(metrics={"train/loss": 2.0})),
            (10, Validation(metrics={"val/loss": 3.0}, weight=1)),
            (20, Metrics(metrics={"train/loss": 1.0})),
            (25, Progress(samples_per_second=5.0)),
        )
        found = hostcore("status", "a", "--json").json
        assert (found["status"], found["step"]) == ("running", 25)
        assert found["metrics"] == {"train/loss": 1.0, "val/loss": 3.0}
        (attempt,) = found["attempts"]
        assert (attempt["status"], attempt["first_step"], attempt["last_step"]) == ("running", 0, 25)


class TestForPeople:
    def test_tells_how_it_ended(self, hostcore: Callable, run: Callable) -> None:
        error = RunError(type="ValueError", message="no", traceback="Traceback: it was here\n", hint="say yes")
        directory = run("a", status="failed", error=error)
        write_checkpoints(directory, 500, 1500)
        said = hostcore("status", "a")
        assert said.out.startswith("failed  a\n")
        for line in (
            "  steps       1,500/2,000 (75%)\n",
            "  error       ValueError: no\n",
            "  hint        say yes\n",
            "  train/loss  0.5\n",
            "  grad        not finite\n",
            "  to go on    hostcore resume a\n",
        ):
            assert line in said.out
        assert "Traceback" not in said.out
        assert "Traceback: it was here" in hostcore("status", "a", "-v").out
        lines = [line.split() for line in said.out.splitlines()]
        assert ["ATTEMPT", "STATUS", "STARTED", "DURATION", "STEPS", "WHY"] in lines
        assert [line[0] for line in lines if line and line[0].startswith("step-")] == ["step-000500", "step-001500"]
        found = hostcore("status", "a", "--json").json["error"]
        assert (found["type"], found["message"], found["hint"]) == ("ValueError", "no", "say yes")

    def test_shows_the_pace_of_a_run(self, hostcore: Callable, run: Callable, tell: Callable) -> None:
        directory = run("a")
        tell(directory, (None, SUBMITTED), (500, Progress(samples_per_second=1234.0)))
        assert "steps       500/2,000 (25%), 1,234 samples/s" in hostcore("status", "a").out

    def test_tells_whose_death_has_lost_a_run(self, hostcore: Callable, run: Callable) -> None:
        directory = run("a")
        lease = Lease.read(directory.lease)
        dead = attrs.evolve(lease.process, pid=4711, start_time=1)
        Lease(process=dead, attempt=1, step=7, last_progress_ms=0, renewed_ms=1).write(directory.lease)
        said = hostcore("status", "a")
        assert said.out.startswith("lost  a\n")
        assert "process 4711 on" in said.out

    def test_shows_the_devices_of_several_ranks_and_which_of_them_failed(
        self, hostcore: Callable, run: Callable, tell: Callable
    ) -> None:
        error = RunError(type="ValueError", message="the loss has exploded", plugin="mine", rank=1)
        directory = run("a", status="failed", error=error)
        tell(directory, (None, attrs.evolve(SUBMITTED, devices=("cuda:0", "cuda:1"))))
        directory.rank_output(1, 1).write_text("the last words")
        said = hostcore("status", "a").out
        assert "devices     2 ranks: cuda:0, cuda:1" in said
        assert "ValueError: the loss has exploded (in mine, on rank 1)" in said
        assert "rank-1.attempt-1.log" in said
        assert hostcore("status", "a", "--json").json["devices"] == ["cuda:0", "cuda:1"]


class TestWhichRun:
    @pytest.mark.parametrize("named", ["flight", "runs/flight-delay-1/"])
    def test_may_be_said_by_the_beginning_of_its_name_or_its_directory(
        self, hostcore: Callable, run: Callable, named: str
    ) -> None:
        run("flight-delay-1", status="succeeded")
        assert hostcore("status", named, "--json").json["run_id"] == "flight-delay-1"

    @pytest.mark.parametrize("run_id", ["nothing", "..", ".", "../runs", "a/b", ""])
    def test_that_is_unknown_exits_2_with_a_hint(self, hostcore: Callable, run_id: str) -> None:
        said = hostcore("status", run_id)
        assert (said.code, said.out) == (2, "")
        assert "hostcore list" in said.err
        said = hostcore("status", run_id, "--json")
        assert said.code == 2
        (error,) = said.json["errors"]
        assert list(error) == ERROR_KEYS
        assert (error["code"], said.err) == ("run.unknown", "")

    def test_that_cannot_be_read_is_an_error(self, hostcore: Callable, run: Callable) -> None:
        directory = run("a", status="succeeded")
        directory.result.write_text("{}")
        said = hostcore("status", "a", "--json")
        assert said.code == 2
        found = (said.json["errors"][0]["code"], said.json["errors"][0]["file"])
        assert found == ("run.corrupt", str(directory.result))
