"""The command line around real runs: what it prints where, what it refuses, what it leaves."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND

RESULT_KEYS = [
    *("run_id", "status", "exit_code", "reason", "requested_by", "attempt", "step", "epoch", "restored_step"),
    *("metrics", "best", "final_checkpoint", "error", "started_ms", "ended_ms", "warnings"),
]

REPORTERS = """
    import json, sys
    from hostcore_hookspecs import FatalError

    class Spy:
        def open(self, ctx):
            self.seen = []
            self.out = open(ctx.run_dir + "/../../spy.json", "w")
        def report_event(self, event):
            print("a reporter that prints")
            self.seen.append(event.name)
        def close(self):
            heavy = [name for name in sys.modules if name.split(".")[0] in ("torch", "small_trainer")]
            json.dump({"seen": self.seen, "heavy": heavy}, self.out)
            self.out.close()

    class FailsInOpen:
        def open(self, ctx): raise FatalError("no connection")
        def report_event(self, event): raise AssertionError("told after it had failed")
        def close(self): raise AssertionError("closed though it was never open")

    class FailsInReport:
        def report_event(self, event): raise FatalError("the tracker wants to quit")

    class FailsInClose:
        def report_event(self, event): pass
        def close(self): raise RuntimeError("no goodbye")
"""


def test_reporters_that_raise_do_not_hurt_the_run_and_are_named_and_none_imports_torch(
    site: Any, own_project: Callable
) -> None:
    names = {"spy": "Spy", "open": "FailsInOpen", "report": "FailsInReport", "close": "FailsInClose"}
    entry_points = {"hostcore.reporters": {name: f"trackers:{symbol}" for name, symbol in names.items()}}
    site.install("trackers", modules={"trackers.py": REPORTERS}, entry_points=entry_points)
    project = own_project(site.environment)
    job = project.job(reporters=[*names], terminal=True, max_steps=5, metric_every=1)
    # A new interpreter, not a fork of one that has imported torch: the test looks for what was imported.
    finished = project.command("run", job, "--json", PYTHONHASHSEED="0")
    assert (finished.code, finished.json["status"]) == (0, "succeeded")
    assert "a reporter that prints" in finished.err
    failures = {
        event["message"]: event["reporter"] for event in project.run().events if event["event"] == "reporter_failed"
    }
    assert failures == {
        f"FatalError: {what}; it gets no more events in this attempt": f"{name} (trackers 1.0)"
        for name, what in [("open", "no connection"), ("report", "the tracker wants to quit")]
    }
    assert "close (trackers 1.0)" in finished.err
    assert "RuntimeError: no goodbye" in finished.err
    spied = json.loads((project.path / "spy.json").read_text())
    assert spied["heavy"] == []
    assert spied["seen"] == project.run().names()
    assert spied["seen"][-1] == "run_succeeded"


class TestARun:
    @pytest.fixture(scope="class")
    @classmethod
    def finished(cls, project: Any) -> Any:
        """A run with the usual reporter whose metric is called loss."""
        job = project.job("plain.json", run_id="plain", max_steps=20, terminal=True, callbacks=["small_trainer:Loss"])
        return project.command("run", job, "--json")

    def test_prints_result_json_on_standard_output_and_its_progress_on_standard_error(
        self, finished: Any, project: Any
    ) -> None:
        assert finished.code == 0
        assert finished.json == project.run("plain").result
        assert list(finished.json) == RESULT_KEYS
        assert "plain" in finished.err
        assert "Traceback" not in finished.err

    def test_that_is_finished_says_so_and_does_nothing(self, finished: Any, project: Any) -> None:
        before = project.run("plain").tree()
        again = project.command("run", project.path / "plain.json")
        assert again.code == 0
        assert again.out.startswith("succeeded  plain  (finished before: nothing to do)")
        assert project.command("run", project.path / "plain.json", "--json").json == finished.json
        assert project.run("plain").tree() == before

    def test_of_another_job_under_its_name_exits_2_and_changes_nothing(self, finished: Any, project: Any) -> None:
        before = project.run("plain").tree()
        other = project.command("run", project.path / "plain.json", "--set", "seed=1", "--json")
        assert other.code == 2
        (error,) = other.json["errors"]
        assert error["code"] == "run.conflict"
        assert "seed" in error["message"]
        assert project.run("plain").tree() == before

    def test_leaves_the_documented_files_and_no_others(self, finished: Any, project: Any) -> None:
        assert (project.run("plain").path / "plots" / "loss.png").read_bytes().startswith(b"\x89PNG")
        files = {path for path, content in project.run("plain").tree().items() if content is not None}
        checkpoint = {path for path in files if path.startswith("checkpoints/step-000020/")}
        assert files - checkpoint == {
            "attempts/1.json",
            "checkpoints/step-000020.json",
            "config/contract.attempt-1.rank-0.json",
            "config/run.json",
            "cursors/terminal.json",
            "logs/events.jsonl",
            "logs/rank-0.attempt-1.jsonl",
            "logs/rank-0.attempt-1.log",
            "plots/loss.png",
            "result.json",
        }
        assert {"host.json", "rank-0.json", "state.json"} <= {path.rpartition("/")[2] for path in checkpoint}

    def test_records_what_it_ran_with(self, finished: Any, project: Any) -> None:
        record = json.loads((project.run("plain").path / "config" / "run.json").read_text())
        assert record["schema"] == "hostcore.run/1"
        assert record["job"]["max_steps"] == 20
        assert set(record["environment"]) >= {"hostcore", "python", "torch", "threads"}
        plugins = {plugin["name"]: plugin for plugin in record["plugins"]}
        assert len(plugins["small_trainer:Trainer"]["sha256"]) == 64
        assert plugins["terminal"]["distribution"] == "hostcore-builtin-plugins"


class TestARunningRun:
    @pytest.fixture(scope="class")
    @classmethod
    def running(cls, project: Any, until: Callable) -> Iterator[Any]:
        """A run in the middle of its steps."""
        slow = {"trainer": "small_trainer:Slow", "max_steps": 10**6}
        command = project.start("run", project.job("running.json", run_id="running", **slow))
        until((project.path / "running.pid").exists, "the third step")
        yield command
        command.signal(signal.SIGINT)
        assert command.end().code == 130

    def test_is_refused_a_second_time(self, running: Any, project: Any) -> None:
        second = project.command("run", project.path / "running.json", "--json")
        assert second.code == 2
        (error,) = second.json["errors"]
        assert (error["code"], error["pointer"]) == ("run.conflict", "/run_id")
        assert f"process {running.process.pid} on" in error["message"]
        assert (project.run("running").path / "attempts" / "2.json").exists() is False

    def test_shows_its_processes(self, running: Any, project: Any) -> None:
        worker = project.run("running").worker_pid
        processes = project.command("status", "running", "--json").json["processes"]
        assert processes == {"host": socket.gethostname(), "supervisor": running.process.pid, "workers": [worker]}


def test_a_fast_dev_run_is_a_short_run_of_its_own(project: Any) -> None:
    dataset = {"source": "mock", "num_rows": 100, "batch_size": 10}
    job = project.job("dev.json", run_id="dev", dataset=dataset, epochs=3, resume_from_checkpoint=False)
    for number in (1, 2):
        said = project.command("run", job, "--fast-dev-run", "--json")
        assert said.code == 0, said.err
        assert (said.json["status"], said.json["step"]) == ("succeeded", 3)
        assert said.json["run_id"].startswith("fast-dev-run-")
        record = json.loads((project.run(said.json["run_id"]).path / "config" / "run.json").read_text())
        assert record["job"]["sanity_batches"] == 0  # it validates at its end
        assert len([one for one in project.path.glob("runs/fast-dev-run-*") if one.is_dir()]) == number
    assert not project.run("dev").path.exists()


VALIDATING = """
from hostcore_hookspecs import StepResult
from small_trainer import Trainer

class Validating(Trainer):
    def validate_step(self, prepared_batch, state, ctx):
        return StepResult(metrics={"error": state["x"]})
"""


@pytest.mark.parametrize(("every", "steps"), [(1, [3]), (50, [3]), ("epoch", [3]), (0, [])])
def test_a_fast_dev_run_validates_once_if_the_job_validates(
    run_here: Callable, events_of: Callable, every: int | str, steps: list[int]
) -> None:
    Path("validating.py").write_text(VALIDATING)
    data = {"source": "mock", "num_rows": 20, "batch_size": 10}
    keys = {"trainer": "validating:Validating", "dataset": data, "validation": data, "validate_every": every}
    said = run_here("validating", "--fast-dev-run", "--json", epochs=3, **keys)
    assert said.code == 0, said.err
    assert [event["step"] for event in events_of(said.json["run_id"], "validation")] == steps


def test_an_error_of_a_fast_dev_run_is_that_of_the_job(run_here: Callable) -> None:
    said = run_here("wrong", "--fast-dev-run", "--json", seed="x")
    assert [error["pointer"] for error in said.json["errors"]] == ["/seed"]


def test_validate_shows_the_plan_and_starts_nothing(project: Any) -> None:
    dataset = {"source": "mock", "num_rows": 100, "batch_size": 10, "shuffle": True}
    job = project.job("valid.json", run_id="valid", dataset=dataset, epochs=3)
    said = project.command("validate", job, "--json")
    assert (said.code, said.err) == (0, "")
    assert (said.json["device"], said.json["num_rows"]) == ("cpu", 100)
    assert (said.json["total_steps"], said.json["steps_per_epoch"]) == (30, 10)
    assert said.json["job"]["run_id"] == "valid"
    assert said.json["plugins"][0]["name"] == "small_trainer:Trainer"
    assert not project.run("valid").path.exists()


@pytest.mark.parametrize(
    ("every", "cadence", "at_risk"),
    [
        (None, "every 10m and at the end", "the training of the last 10m"),
        ("epoch", "every epoch and at the end", "the training of the last epoch"),
        (4, "every 4 and at the end", "the last 4 steps"),
        (0, "at the end", 'the whole training, as "checkpoint_every" is 0'),
    ],
)
def test_validate_says_what_a_kill_would_cost(
    project: Any, every: int | str | None, cadence: str, at_risk: str
) -> None:
    dataset = {"source": "mock", "num_rows": 100, "batch_size": 10}
    keys = {} if every is None else {"checkpoint_every": every}
    said = project.command("validate", project.job("risk.json", run_id="risk", dataset=dataset, **keys))
    assert (said.code, said.err) == (0, "")
    assert f", a checkpoint {cadence}\n" in said.out
    assert f"  {at_risk}, if the run is killed\n" in said.out


def test_the_end_of_a_run_that_failed_says_which_steps_no_checkpoint_holds(run_here: Callable) -> None:
    keys = {"dataset": {"source": "mock", "num_rows": 100, "batch_size": 10}, "hyperparams": {"how": "raise", "at": 8}}
    with_one = run_here("with", checkpoint_every=3, **keys)
    assert "1 of these steps, since the checkpoint of step 6\n" in with_one.out
    without = run_here("without", **keys)
    assert 'all steps; "checkpoint_every" says how often to write a checkpoint\n' in without.out


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "1 row of each epoch, which does not fill a step of 16: always the last of the data"),
        ({"shuffle": True}, "1 row of each epoch, which does not fill a step of 16: those that come last in its order"),
        ({"batch_size": 25}, "13 rows of each epoch, which do not fill a step of 25: always the last of the data"),
        ({"num_rows": 112}, None),
    ],
    ids=["in order", "shuffled", "several", "none"],
)
def test_validate_tells_of_the_rows_that_an_epoch_leaves_out(
    project: Any, keys: dict[str, Any], says: str | None
) -> None:
    dataset = {"source": "mock", "num_rows": 113, "batch_size": 16, **keys}
    said = project.command("validate", project.job("tail.json", run_id="tail", dataset=dataset))
    told = [line.partition("  left out  ")[2] for line in said.out.splitlines() if line.startswith("  left out  ")]
    assert [line.strip() for line in told] == ([says] if says else [])


def test_the_rows_that_an_epoch_leaves_out_are_recorded(run_here: Callable, here: Path) -> None:
    dataset = {"source": "mock", "num_rows": 113, "batch_size": 8}
    said = run_here("left", "--json", dataset=dataset, accumulate=1, global_batch_size=8)
    record = json.loads((here / "left" / "config" / "run.json").read_text())
    assert (said.json["step"], record["total_steps"], record["rows_left_out"]) == (14, 14, 1)


def test_data_that_is_wrong_from_the_start_exits_2_and_leaves_no_run(project: Any) -> None:
    job = project.job("labels.json", run_id="labels", hyperparams={"how": "invalid", "at": 1}, max_steps=5)
    said = project.command("run", job, "--json")
    assert said.code == 2
    (error,) = said.json["errors"]
    assert (error["code"], error["message"]) == ("data.invalid", "the labels are all the same")
    assert "Traceback" not in said.err
    assert not project.run("labels").path.exists()


def test_a_plugin_s_thread_does_not_keep_a_refused_job_from_ending(project: Any) -> None:
    job = project.job("thread.json", run_id="thread", trainer="small_trainer:LeavesAThread", max_steps=5)
    started = [
        project.start(command, job, "--set", f"run_id={command}-thread", "--json") for command in ("run", "validate")
    ]
    for said in [command.end() for command in started]:
        assert said.code == 2
        assert "the constructor gave up" in said.json["errors"][0]["message"]
    assert not project.run("run-thread").path.exists()


def test_progress_is_shown_beside_a_tracker_and_not_with_quiet(project: Any) -> None:
    keys = {"reporters": [{"use": "jsonl", "path": "told.jsonl"}], "terminal": True, "metric_every": 1}
    shown = project.command("run", project.job("shown.json", run_id="shown", max_steps=3, **keys))
    assert shown.code == 0
    assert "shown step 3/3" in shown.err
    assert "shown succeeded at step 3" in shown.err
    quiet = project.command("run", project.job("quiet.json", run_id="quiet", max_steps=3, **keys), "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.startswith("succeeded  quiet")
    assert (project.path / "told.jsonl").read_text().count('"run_succeeded"') == 2
    quiet = project.command("resume", "shown", "--set", "max_steps=4", "-q")
    assert (quiet.code, quiet.err) == (0, "")
    shown = project.command("resume", "shown", "--set", "max_steps=6", "--set", "terminal=true")
    assert "shown succeeded at step 6" in shown.err


def test_a_run_without_any_standard_stream_does_its_work_and_ps_names_the_run(project: Any, until: Callable) -> None:
    keys = {"trainer": "small_trainer:Slow", "max_steps": 10**6}
    job = project.job("closed.json", run_id="closed", **keys)
    script = 'exec "$0" run "$1" <&- >&- 2>&-'
    command = ["sh", "-c", script, COMMAND, str(job)]
    with subprocess.Popen(command, cwd=project.path, env=dict(project.environment)) as process:
        until((project.path / "closed.pid").exists, "the third step")
        arguments = Path(f"/proc/{project.run('closed').worker_pid}/cmdline").read_text().split("\0")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert arguments[arguments.index("-m") + 1] == "hostcore.worker"
    assert f"{project.run('closed').path}/" in arguments[arguments.index("-m") + 2]
    assert project.run("closed").result["status"] == "cancelled"
    assert "hello from the trainer" in project.run("closed").output()
