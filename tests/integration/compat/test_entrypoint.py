"""``python -m hostcore.entrypoint``: the same run, described by environment variables."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.entrypoint import InvalidEnvironment, plan_from_environment
from hostcore_hookspecs import HostcoreError

DIES = """
import os
from skeleton import MyTrainer

class Dies(MyTrainer):
    def train_step(self, prepared_batch, state, ctx):
        state["step"] += 1
        if state["step"] == int(os.environ.get("DIE_AT", "0")):
            os._exit(1)
        return super().train_step(prepared_batch, state, ctx)
"""


def test_every_variable_has_its_place_and_a_second_start_goes_on(mount: Any) -> None:
    (mount.folder / "dies.py").write_text(DIES)
    folders = {name: str(mount.folder / name.lower()) for name in ("CHECKPOINTS", "SAMPLES", "ARTIFACTS", "METRICS")}
    variables = {f"TRAINER_{name}_DIR": path for name, path in folders.items()}
    variables["TRAINER_EVENTS_PATH"] = str(mount.folder / "sink/events.jsonl")
    variables["TRAINER_PLUGIN"] = "dies:Dies"

    assert mount.entrypoint(**variables, DIE_AT="450").returncode == 1
    assert mount.document("artifacts/run_123/result.json")["status"] == "failed"
    answer = mount.entrypoint(**variables)
    assert answer.returncode == 0, answer.stderr
    result = mount.document("artifacts/run_123/result.json")
    assert (result["status"], result["attempt"], result["step"]) == ("succeeded", 2, 1000)

    assert sorted(path.name for path in (mount.folder / "checkpoints").glob("*.json")) == [
        "step-000600.json",
        "step-000800.json",
        "step-001000.json",
    ]
    assert (mount.folder / "artifacts/run_123" / result["final_checkpoint"]).resolve() == (
        mount.folder / "checkpoints/step-001000"
    )
    contract = mount.document("artifacts/run_123/config/contract.attempt-2.rank-0.json")
    assert contract["contract_version"] == "v1"
    assert contract["trainer_plugin"] == "dies:Dies"  # the variable wins over the job
    assert contract["checkpoints_dir"] == folders["CHECKPOINTS"]
    assert contract["samples_dir"] == folders["SAMPLES"]
    assert contract["arrow_ipc_path"] == ""
    assert Path(contract["job_spec_path"]) == mount.folder / "artifacts/run_123/config/run.json"
    assert Path(contract["events_path"]).is_file()

    told = mount.lines("sink/events.jsonl")
    assert told == mount.lines("artifacts/run_123/logs/events.jsonl")
    assert [event["event"] for event in told].count("run_resumed") == 1
    assert not (mount.folder / "metrics").exists()  # TRAINER_EVENTS_PATH wins over TRAINER_METRICS_DIR
    assert not (mount.folder / "runs").exists()

    again = mount.entrypoint(**variables)
    assert again.returncode == 0
    assert "finished before: nothing to do" in again.stdout
    assert mount.lines("sink/events.jsonl") == told


def test_without_folders_the_run_lies_where_hostcore_run_puts_it(mount: Any) -> None:
    mount.changed(max_steps=20)
    answer = mount.entrypoint(TRAINER_METRICS_DIR="metrics", TRAINER_PLUGIN="", TRAINER_SAMPLES_DIR="")
    assert answer.returncode == 0, answer.stderr
    assert mount.document("runs/run_123/result.json")["step"] == 20
    assert (mount.folder / "runs/run_123/checkpoints/step-000020.json").is_file()
    assert mount.lines("metrics/events.jsonl") == mount.lines("runs/run_123/logs/events.jsonl")


def test_a_missing_job_file_is_one_clear_error(mount: Any) -> None:
    answer = mount.entrypoint(TRAINER_JOB_SPEC_PATH=str(mount.folder / "trainer_jobs.json"))
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert answer.stderr.startswith("error: there is no such job file")
    assert "trainer_job.json" in answer.stderr.partition("hint:")[2]
    assert "file: /app/.cozy/trainer_job.json" in mount.entrypoint(TRAINER_JOB_SPEC_PATH="").stderr


def test_a_folder_that_cannot_be_made_is_refused_before_the_run_begins(mount: Any) -> None:
    (mount.folder / "file").write_text("in the way")
    for name, what in (("CHECKPOINTS", "checkpoints"), ("SAMPLES", "generated samples")):
        answer = mount.entrypoint(**{f"TRAINER_{name}_DIR": "file/folder"})
        assert answer.returncode == 2
        assert "Traceback" not in answer.stderr
        assert f"error: {what} cannot be written to {mount.folder / 'file/folder'}" in answer.stderr
        assert "is not a folder" in answer.stderr
    assert not (mount.folder / "runs").exists()


def test_another_mode_is_refused(mount: Any) -> None:
    answer = mount.entrypoint(WORKER_MODE="inference")
    assert answer.returncode == 2
    assert "WORKER_MODE is 'inference'" in answer.stderr
    assert "WORKER_MODE=trainer" in answer.stderr
    assert mount.entrypoint(WORKER_MODE="").returncode == 2
    assert not (mount.folder / "runs").exists()


def test_the_run_time_is_limited_as_the_environment_says(mount: Any) -> None:
    environment = {"WORKER_MODE": "trainer", "TRAINER_JOB_SPEC_PATH": str(mount.folder / "trainer_job.json")}
    assert (
        plan_from_environment({**environment, "TRAINER_MAX_RUNTIME_SECONDS": "3600"}).spec.max_runtime_seconds == 3600
    )
    assert plan_from_environment({**environment, "TRAINER_MAX_RUNTIME_SECONDS": ""}).spec.max_runtime_seconds == 0
    with pytest.raises(HostcoreError, match="expected a number"):
        plan_from_environment({**environment, "TRAINER_MAX_RUNTIME_SECONDS": "an hour"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAINER_CANCELLED", "yes"),
        ("TRAINER_CANCEL_FILE", "/tmp/cancel"),
        ("TRAINER_CAPABILITY_TOKEN", "token"),
        ("TRAINER_ORCHESTRATED", "true"),
        ("TRAINER_UPLOAD_CHECKPOINT_URL", "https://example.invalid"),
        ("TRAINER_UPLOAD_METRICS_URL", "https://example.invalid"),
        ("TRAINER_UPLOAD_SAMPLE_URL", "https://example.invalid"),
        ("TRAINER_UPLOAD_TERMINAL_URL", "https://example.invalid"),
    ],
)
def test_a_variable_that_would_have_no_effect_is_refused(mount: Any, name: str, value: str) -> None:
    environment = {"WORKER_MODE": "Trainer ", "TRAINER_JOB_SPEC_PATH": str(mount.folder / "trainer_job.json")}
    with pytest.raises(InvalidEnvironment, match=name) as caught:
        plan_from_environment({**environment, name: value})
    assert caught.value.hint == f"unset {name}"
    assert plan_from_environment({**environment, name: ""}).spec.run_id == "run_123"
    assert plan_from_environment({**environment, name: "0"}).spec.run_id == "run_123"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TRAINER_PLUGIN", "nope", "no trainer is called 'nope'"),
        ("TRAINER_MAX_RUNTIME_SECONDS", "soon", 'found "soon"'),
    ],
)
def test_a_wrong_value_names_the_variable_that_it_came_from(mount: Any, variable: str, value: str, says: str) -> None:
    answer = mount.entrypoint(**{variable: value})
    assert answer.returncode == 2
    assert says in answer.stderr
    assert f"from: ${variable}\n" in answer.stderr
