"""Whatever was due when a stop came is made by the next attempt: the run is the one that was never stopped."""

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import hostcore
from hostcore.cli.commands.verify import verify_command
from hostcore.runs.result import RunResult

STEPS = 12  # two epochs of six
STOPPING = {"use": "early-stopping", "patience": 1}
KEEPING = "best-checkpoint"
WATCH = "owed_trainer:Watch"


def mock(rows: int, **more: Any) -> dict[str, Any]:
    return {"source": "mock", "num_rows": rows, "batch_size": 4, **more}


def job(run_id: str, **keys: Any) -> dict[str, Any]:
    return {
        "trainer": "owed_trainer:Trainer",
        "callbacks": [WATCH, KEEPING],
        "dataset": mock(24),
        "validation": mock(8),
        "test": mock(8),
        "epochs": 2,
        "metric_every": 1,
        "validate_every": 3,
        "sample_every": 6,
        "samples": [{"prompt": "one"}, {"prompt": "two"}],
        "keep_checkpoints": 1,
        "terminal": False,
        "device": "cpu",
        "run_id": run_id,
        **keys,
    }


@attrs.frozen
class Trace:
    """What must not differ."""

    hooks: Sequence[str]
    validations: Sequence[Any]
    tests: Sequence[Any]
    samples: dict[str, str]
    metrics: dict[str, float]
    best: Any
    tested: float
    reason: str | None
    step: int


@attrs.frozen
class Runs:
    """Runs in this process, that SIGTERM stops."""

    trainer: ModuleType
    folder: Path
    numbers: Any = attrs.field(factory=itertools.count)

    def begin(self, stops: Sequence[tuple[str, int]], **keys: Any) -> tuple[str, list[Any]]:
        """The first attempts: each ends preempted at the next place."""
        run_id, events = f"run-{next(self.numbers)}", []
        self.trainer.HOOKS.clear()
        for stop in stops:
            self.trainer.STOPS[:] = [stop]
            result = hostcore.run(job(run_id, **keys), on_event=events.append)
            assert (result.status, self.trainer.STOPS) == ("preempted", []), (stop, result)
            self.verify(run_id)
        return run_id, events

    def to_the_end(self, *stops: tuple[str, int], **keys: Any) -> Trace:
        run_id, events = self.begin(stops, **keys)
        result = hostcore.run(job(run_id, **keys), on_event=events.append)
        assert result.status == "succeeded", result
        self.verify(run_id)
        return self.trace(run_id, events, result)

    def trace(self, run_id: str, events: list[Any], result: RunResult) -> Trace:
        samples = self.folder / run_id / "samples"
        return Trace(
            hooks=list(self.trainer.HOOKS),
            validations=[(one.step, one.epoch, one.payload) for one in events if one.name == "validation"],
            tests=[(one.step, one.payload) for one in events if one.name == "test"],
            samples={str(path.relative_to(samples)): path.read_text() for path in samples.rglob("text")},
            metrics=dict(result.metrics),
            best=result.best,
            tested=self.trainer.TESTED[run_id],
            reason=result.reason,
            step=result.step,
        )

    def verify(self, run_id: str) -> None:
        """See that a run, stopped or at its end, is found to have lost nothing."""
        document = json.loads(
            CliRunner().invoke(verify_command, [run_id, "--runs-dir", str(self.folder), "--json"]).output
        )
        assert document["ok"], [one for one in document["checks"] if one["status"] == "failed"]
        (due,) = [one for one in document["checks"] if one["id"] == "log.due"]
        assert due["status"] == "ok"


@pytest.fixture(scope="module")
def runs(here: Path) -> Runs:
    import owed_trainer

    return Runs(owed_trainer, here)


@pytest.fixture(scope="module")
def whole(runs: Runs) -> Callable[..., Trace]:
    """The run that nothing stops, once for each job."""
    known: dict[str, Trace] = {}

    def of(**keys: Any) -> Trace:
        if (name := repr(keys)) not in known:
            known[name] = runs.to_the_end(**keys)
        return known[name]

    return of


@pytest.mark.parametrize(
    "stops",
    [
        [("train_step", 3), ("train_step", 6), ("train_step", 12)],
        [("validate_step", 3), ("on_batch_end", 6), ("validate_step", 12)],
        [("on_validation_begin", 6), ("sample one", 12)],
        [("validate_step", 6), ("on_test_begin", 12)],
        [("on_validation_end", 6), ("test_step", 12)],
        [("sample two", 6)],
        [("on_epoch_end", 6)],
    ],
    ids=str,
)
def test_a_run_that_was_stopped_there_makes_everything_that_was_due(
    runs: Runs, whole: Callable, stops: list[tuple[str, int]]
) -> None:
    assert runs.to_the_end(*stops) == whole()


def test_several_stops_at_one_step_leave_the_rest_each_time(runs: Runs, whole: Callable) -> None:
    places = {6: ("train_step", "validate_step", "sample one", "on_epoch_end")}
    places |= {12: ("train_step", "validate_step", "sample one", "test_step")}
    assert runs.to_the_end(*((place, step) for step in places for place in places[step])) == whole()


WATCHED, WATCHING = [WATCH, STOPPING], [STOPPING, WATCH, KEEPING]


@pytest.mark.parametrize(
    ("callbacks", "place"),
    [
        (WATCHED, "train_step"),
        (WATCHED, "test_step"),
        (WATCHING, "validate_step"),
        (WATCHING, "on_validation_end"),
    ],
    ids=str,
)
def test_early_stopping_ends_at_the_same_step_with_the_same_weights(
    runs: Runs, whole: Callable, callbacks: list[Any], place: str
) -> None:
    expected = whole(callbacks=callbacks)
    assert expected.step == 9
    assert runs.to_the_end((place, 9), callbacks=callbacks) == expected


@pytest.mark.parametrize("stop", [("validate_step", 6), ("sample one", 6)], ids=lambda place: place[0])
def test_a_request_to_go_back_that_was_not_answered_yet_is_answered_behind_the_rest(
    runs: Runs, whole: Callable, stop: tuple[str, int]
) -> None:
    keys = {"callbacks": [WATCH, "owed_trainer:GoBack"]}
    assert runs.to_the_end(stop, **keys) == whole(**keys)


def test_the_checkpoint_that_was_best_is_kept_while_the_validation_is_owed(runs: Runs) -> None:
    run_id, events = runs.begin([("validate_step", 9)])
    assert [one.payload.owed for one in events if one.name == "run_resumed"] == []
    assert sorted(path.name for path in (runs.folder / run_id / "checkpoints").glob("*.json")) == [
        "step-000006.json",
        "step-000009.json",
    ]
    hostcore.run(job(run_id), on_event=events.append)
    assert [one.payload.owed for one in events if one.name == "run_resumed"] == [("validation",)]


def test_another_run_that_begins_there_makes_the_validation_if_it_has_any(runs: Runs) -> None:
    run_id, _ = runs.begin([("validate_step", 6)])
    begins = {"resume_from_checkpoint": str(runs.folder / run_id / "checkpoints" / "step-000006.json")}
    for name, keys, steps in (
        ("validates", {}, [6, 9, 12]),
        ("does-not", {"validation": None, "validate_every": 0}, []),
    ):
        events: list[Any] = []
        given = {**job(f"{run_id}-{name}", callbacks=[WATCH], **begins), **keys}
        result = hostcore.run({key: value for key, value in given.items() if value is not None}, on_event=events.append)
        assert (result.status, result.step) == ("succeeded", STEPS)
        assert [one.step for one in events if one.name == "validation"] == steps
        runs.verify(f"{run_id}-{name}")


def test_an_ended_run_that_is_asked_for_more_steps_is_not_ended_by_the_request_of_then(runs: Runs) -> None:
    keys = {"callbacks": [STOPPING]}
    run_id, _ = runs.begin([("test_step", 9)], **keys)
    result = hostcore.run(job(run_id, epochs=3, **keys))
    assert (result.status, result.step) == ("succeeded", 12)


class TestInProcessesOfTheirOwn:
    @pytest.fixture
    def stopped(self, project: Any) -> Callable[..., Any]:
        shutil.copy(Path(__file__).with_name("owed_trainer.py"), project.path)

        def end(run_id: str, trainer: str, **keys: Any) -> Path:
            path = project.path / f"{run_id}.json"
            given = job(run_id, trainer=f"owed_trainer:{trainer}", callbacks=[], **keys)
            path.write_text(json.dumps({name: value for name, value in given.items() if name != "device" or not keys}))
            return path

        return end

    def test_a_validation_of_two_ranks_of_which_one_was_stopped(self, project: Any, stopped: Callable) -> None:
        whole, cut = (stopped(name, "StopsOneRank", devices=["cpu", "cpu"]) for name in ("whole", "cut"))
        assert project.command("run", whole, STOP_AT="-1").code == 0
        assert project.command("run", cut, STOP_AT="3").code == 75
        (project.path / "cut.stopped").unlink()
        assert project.command("resume", "cut", STOP_AT="6").code == 75
        assert project.command("resume", "cut", STOP_AT="-1").code == 0
        assert validations(project, "cut") == validations(project, "whole")
        assert project.command("verify", "cut").code == 0

    def test_a_cancelled_run_makes_its_validation_when_it_is_resumed(
        self, project: Any, stopped: Callable, until: Callable
    ) -> None:
        whole, cut = stopped("uncancelled", "Waits"), stopped("cancelled", "Waits")
        assert project.command("run", whole).code == 0
        started = project.start("run", cut, WAITS="yes")
        until((project.path / "cancelled.waits").exists, "the validation")
        assert project.command("cancel", "cancelled").code == 0
        assert started.end().code == 130
        assert validations(project, "cancelled") == validations(project, "uncancelled")[:1]
        assert project.command("resume", "cancelled").code == 0
        assert validations(project, "cancelled") == validations(project, "uncancelled")
        assert project.command("verify", "cancelled").code == 0


def validations(project: Any, run_id: str) -> list[Any]:
    return [(one["step"], one["metrics"]) for one in project.run(run_id).events if one["event"] == "validation"]
