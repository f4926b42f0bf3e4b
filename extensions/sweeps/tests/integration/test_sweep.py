"""A sweep by the command, its trials real runs: what comes of it, and what is in its folder."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import optuna
import orjson
import pytest
from fork_server import ran
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


@pytest.fixture(scope="module")
def _swept(make_place: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    place = make_place.make(tmp_path_factory.mktemp("swept") / "place")
    place.job(hyperparams={"seconds": 0.02})
    place.sweep(pruner={"use": "asha", "min_steps": 4}, limits={"trials": 2, "parallel": 2})
    return place, place.hostcore("sweep", "sweep.json")


@pytest.fixture
def swept(_swept: tuple[Any, Any], make_place: Any, tmp_path: Path) -> Any:
    """A folder in which a sweep of two trials has ended."""
    place = make_place(tmp_path / "place")
    shutil.copytree(_swept[0].path, place.path)
    return place


def result(place: Any, run_id: str) -> Any:
    return orjson.loads((place.path / "runs" / run_id / "result.json").read_bytes())


def test_every_trial_is_one_run_and_a_pruned_one_is_cancelled_with_the_pruners_reason(_swept: tuple[Any, Any]) -> None:
    place, said = _swept
    assert said.code == 0, said.err
    trials = place.status()["trials"]
    assert [row["run_id"] for row in trials] == place.run_ids() == ["walk-0000", "walk-0001"]
    assert trials[0]["state"] == "complete"
    assert "pruned" in {row["state"] for row in trials}
    for row in trials:
        ended = result(place, row["run_id"])
        assert ended["attempt"] == 1
        if row["state"] == "pruned" and ended["status"] != "succeeded":
            assert (ended["status"], ended["reason"]) == ("cancelled", row["reason"])
            assert row["reason"].startswith("pruned by asha at step 4: train/loss was ")


def test_a_sweep_that_has_ended_stays_as_it_is(swept: Any) -> None:
    before = swept.status()["trials"]
    assert swept.hostcore("sweep", "sweep.json").code == 0
    assert swept.status()["trials"] == before


@pytest.mark.parametrize("words", [("sweep.json",), ("status", "walk")])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(swept: Any, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    said = ran(["sweep", *words], cwd=swept.path, env=swept.environment, stdout=writer, text=True)
    os.close(writer)
    assert (said.returncode, "Traceback" in said.stderr) == (1, False)


def test_the_job_of_the_best_trial_is_ready_to_run(swept: Any) -> None:
    (best,) = swept.status()["best"]
    said = swept.hostcore("sweep", "best", "walk")
    assert said.json["hyperparams"]["lr"] == swept.status()["trials"][best]["values"]["/hyperparams/lr"]
    assert not {"run_id", "labels"} & said.json.keys()
    (swept.path / "best.json").write_text(said.out)
    assert swept.hostcore("validate", "best.json").code == 0


def test_optunas_own_tools_read_the_trials(swept: Any) -> None:
    file = swept.path / "sweeps" / "walk" / "optuna.journal"
    study = optuna.load_study(study_name="walk", storage=JournalStorage(JournalFileBackend(str(file))))
    rows = swept.status()["trials"]
    assert [trial.state.name.lower() for trial in study.trials] == [row["state"] for row in rows]
    assert [trial.params for trial in study.trials] == [row["values"] for row in rows]
    assert study.best_trial.number == swept.status()["best"][0]


def test_another_sweep_under_the_same_id_is_refused(swept: Any) -> None:
    swept.sweep(seed=5, pruner={"use": "asha", "min_steps": 4}, limits={"trials": 2, "parallel": 2})
    said = swept.hostcore("sweep", "sweep.json")
    assert said.code == 2
    assert "exists and differs in seed" in said.err


@pytest.mark.parametrize("sweep", ["sweep.json", "walk"])
@pytest.mark.parametrize(
    ("option", "told"), [("--runs-dir", "the runs of the sweep 'walk' are in"), ("--server", "run at this machine")]
)
def test_a_sweep_goes_on_nowhere_else(swept: Any, sweep: str, option: str, told: str) -> None:
    swept.sweep(pruner={"use": "asha", "min_steps": 4}, limits={"trials": 3, "parallel": 2})
    before = swept.run_ids()
    said = swept.hostcore("sweep", "run", sweep, option, "http://127.0.0.1:1", "--json")
    (error,) = said.json["errors"]
    assert (said.code, error["code"]) == (2, "sweep.different")
    assert told in error["message"]
    assert f"leave {option} out" in error["hint"]
    assert (swept.run_ids(), swept.status()["max_trials"]) == (before, 2)


def test_the_folder_of_runs_that_a_sweep_has_may_be_named(swept: Any) -> None:
    place = json.loads((swept.path / "sweeps" / "walk" / "sweep.json").read_bytes())["runs"]
    assert swept.hostcore("sweep", "run", "walk", "--runs-dir", place).code == 0


@pytest.mark.parametrize("words", [("sweep", "sweep.json"), ("sweep", "run", "sweep.json", "--dry-run")])
def test_a_wrong_sweep_is_told_and_leaves_nothing(place: Any, words: tuple[str, ...]) -> None:
    place.sweep(space={"/hyperparams/lr": {"uniform": [1, 0]}}, sampler="best")
    said = place.hostcore(*words, "--json")
    assert said.code == 2
    assert {error["pointer"] for error in said.json["errors"]} == {"/space/~1hyperparams~1lr", "/sampler"}
    assert "Traceback" not in said.err
    assert not (place.path / "sweeps").exists()


def test_a_wrong_hyperparameter_is_told_before_anything_is_started(place: Any) -> None:
    place.sweep(space={"/hyperparams/lrr": {"uniform": [0, 1]}})
    said = place.hostcore("sweep", "sweep.json", "--json")
    assert said.code == 2
    (error,) = said.json["errors"]
    assert (error["pointer"], error["file"]) == ("/hyperparams/lrr", "the job of trial 0")
    assert 'did you mean "lr"?' in error["hint"]
    assert not (place.path / "sweeps").exists()


def test_a_dry_run_shows_five_jobs_and_starts_nothing(place: Any) -> None:
    place.sweep(limits={"trials": 60})
    said = place.hostcore("sweep", "sweep.json", "--dry-run", "--json")
    assert [job["run_id"] for job in said.json["jobs"]] == [f"walk-{number:04d}" for number in range(5)]
    assert len({json.dumps(job["hyperparams"]) for job in said.json["jobs"]}) == 5
    assert not (place.path / "sweeps").exists()
    assert not (place.path / "runs").exists()


def test_an_unknown_sweep_is_told_with_those_that_there_are(swept: Any) -> None:
    said = swept.hostcore("sweep", "status", "wlak")
    assert said.code == 2
    assert "there are walk" in said.err


def test_a_journal_that_is_garbage_is_written_anew(swept: Any) -> None:
    swept.sweep(pruner={"use": "asha", "min_steps": 4}, limits={"trials": 2, "parallel": 2})
    file = swept.path / "sweeps" / "walk" / "optuna.journal"
    for garbage in (
        b'{"op_code": 4\n{}\nno journal at all\n',
        b"\xff\xfe\x00\n" * 9,
        b'{"op_code": 99, "worker_id": 1}\n',
    ):
        file.write_bytes(garbage)
        said = swept.hostcore("sweep", "walk")
        assert (said.code, "Traceback" in said.err) == (0, False), said.err
        study = optuna.load_study(study_name="walk", storage=JournalStorage(JournalFileBackend(str(file))))
        assert [trial.params for trial in study.trials] == [row["values"] for row in swept.status()["trials"]]


@pytest.mark.parametrize(
    ("metric", "code", "reason"),
    [
        ("train_loss", 2, 'no run reports the objective "train_loss"; did you mean "train/loss"?'),
        ("accuracy", 1, "trial 0: accuracy was never reported; its run has reported distance, train/loss"),
    ],
)
def test_an_objective_that_no_run_reports_costs_one_trial(place: Any, metric: str, code: int, reason: str) -> None:
    place.sweep(objective={"metric": metric, "mode": "min"}, limits={"trials": 5})
    said = place.hostcore("sweep", "sweep.json")
    assert said.code == code, said.err
    status = place.status()
    assert status["reason"] == reason
    assert len(status["trials"]) == 1
    again = place.hostcore("sweep", "sweep.json")  # nor does it begin others when it is asked again
    assert again.code in (1, 2)  # as the trial has been paused, or has ended before
    assert len(place.status()["trials"]) == 1
