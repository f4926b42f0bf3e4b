"""Their trainer skeleton and their job file, with new names and paths, under ``hostcore run``."""

import json
from pathlib import Path
from typing import Any

SKELETON = Path(__file__).parent / "data" / "skeleton.py.txt"

#: Writes into its folder what it was given, and counts on after a restart.
COUNTING = """
import os

class Counting:
    def setup(self, ctx): pass
    def configure(self, ctx): return {"step": 0}
    def prepare_batch(self, raw_batch, state, ctx):
        assert raw_batch.schema.names == ["image_ref", "caption"]
        assert raw_batch.num_rows == 32
        return raw_batch["caption"][0].as_py()
    def train_step(self, prepared_batch, state, ctx):
        from hostcore_hookspecs import StepResult
        state["step"] += 1
        if state["step"] == int(os.environ.get("DIE_AT", "0")):
            while not os.path.exists("runs/run_123/checkpoints/step-000200.json"):
                pass  # it is written in the background
            os._exit(1)
        return StepResult(metrics={"train/loss": 1 / state["step"], "lr": ctx.hyperparams["learning_rate"]})
    def state_dict(self, state): return dict(state)
    def load_state_dict(self, state, payload, ctx): state.update(payload)
    def save_checkpoint(self, *, state, step, output_dir, final, ctx):
        with open(os.path.join(output_dir, "weights.txt"), "w") as file:
            file.write(str(step))
        return {"primary_path": "weights.txt"}
    def load_checkpoint(self, *, state, checkpoint_dir, payload, ctx):
        with open(os.path.join(checkpoint_dir, "weights.txt")) as file:
            assert int(file.read()) == state["step"] == payload["step"]
"""


def test_the_skeleton_runs_their_job_to_its_last_step(mount: Any) -> None:
    answer = mount.start("hostcore", "run", "trainer_job.json")
    assert answer.returncode == 0, answer.stderr
    result = mount.document("runs/run_123/result.json")
    assert (result["status"], result["step"], result["metrics"]) == ("succeeded", 1000, {"train/loss": 0.0})
    assert result["final_checkpoint"] == "checkpoints/step-001000"
    events = mount.lines("runs/run_123/logs/events.jsonl")
    metrics = [event["step"] for event in events if event["event"] == "metrics"]
    assert metrics == list(range(10, 1001, 10))
    saved = [event["path"] for event in events if event["event"] == "checkpoint_saved"]
    assert saved == [f"checkpoints/step-{step:06d}" for step in (200, 400, 600, 800, 1000)]
    job = mount.document("runs/run_123/config/run.json")["job"]
    assert (job["owner"], job["release_ref"], job["trainer_api_version"]) == ("org_id", "org/repo:latest", "v1")


def test_a_trainer_gets_their_columns_hyperparameters_and_checkpoints(mount: Any) -> None:
    (mount.folder / "counting.py").write_text(COUNTING)
    mount.changed(trainer="counting:Counting")
    died = mount.start("hostcore", "run", "trainer_job.json", DIE_AT="250")
    assert died.returncode == 1
    assert mount.document("runs/run_123/result.json")["error"]["type"] == "WorkerDied"
    answer = mount.start("hostcore", "run", "trainer_job.json")
    assert answer.returncode == 0, answer.stderr
    result = mount.document("runs/run_123/result.json")
    assert (result["attempt"], result["step"]) == (2, 1000)
    assert result["metrics"] == {"train/loss": 0.001, "train/lr": 0.0001}
    events = mount.lines("runs/run_123/logs/events.jsonl")
    assert [event["path"] for event in events if event["event"] == "run_resumed"] == ["checkpoints/step-000200"]
    assert Path(mount.folder / "runs/run_123/checkpoints/step-001000/trainer/weights.txt").read_text() == "1000"


def test_the_skeleton_as_it_is_says_which_import_to_write(mount: Any) -> None:
    (mount.folder / "skeleton.py").write_text(SKELETON.read_text())
    for command in ("validate", "run"):
        answer = mount.start("hostcore", command, "trainer_job.json")
        assert answer.returncode == 2
        assert "    hint: write: from hostcore_hookspecs import StepContext, StepResult\n" in answer.stderr
        assert "Traceback" not in answer.stderr


def test_a_module_alone_is_the_trainer_in_it(mount: Any) -> None:
    mount.changed(trainer="skeleton", max_steps=2)
    answer = mount.start("hostcore", "run", "trainer_job.json")
    assert answer.returncode == 0, answer.stderr
    assert mount.document("runs/run_123/result.json")["step"] == 2

    mount.changed(trainer="skeleton", run_id="refused", import_paths=False)
    answer = mount.start("hostcore", "run", "trainer_job.json")
    assert (answer.returncode, "skeleton: is an import path" in answer.stderr) == (2, True), answer.stderr

    (mount.folder / "two.py").write_text(
        "from skeleton import MyTrainer\nclass A(MyTrainer): ...\nclass B(MyTrainer): ...\n"
    )
    mount.changed(trainer="two", run_id="ambiguous", import_paths=True)
    for command in ("validate", "run"):
        answer = mount.start("hostcore", command, "trainer_job.json")
        assert answer.returncode == 2
        assert answer.stderr.startswith("error: two has more than one trainer: A, B\n"), answer.stderr
        assert "    hint: Write which: two:A or two:B\n" in answer.stderr
    assert not (mount.folder / "runs/ambiguous").exists()


def test_their_job_generates_no_samples_and_is_told_so(mount: Any) -> None:
    told = '"sample_every" is 200, but the trainer has no generate_sample'
    hint = 'give it one, or remove "sample_every"'
    answer = mount.start("hostcore", "validate", "trainer_job.json")
    assert answer.returncode == 0
    assert answer.stderr == f"warning: {told}\n      at: /sample_every\n    hint: {hint}\n"
    document = json.loads(mount.start("hostcore", "validate", "trainer_job.json", "--json").stdout)
    (warning,) = document["job_warnings"]
    assert warning["message"] == told
    assert (warning["code"], warning["pointer"], warning["hint"]) == ("samples.none", "/sample_every", hint)
    assert told in document["warnings"][0]

    mount.changed(max_steps=2)
    answer = mount.start("hostcore", "run", "trainer_job.json")
    assert answer.returncode == 0
    assert f"run_123 warning: {told}; {hint}\n" in answer.stderr
    events = mount.lines("runs/run_123/logs/events.jsonl")
    codes = [event["code"] for event in events if event["event"] == "warning"]
    assert codes.count("samples.none") == 1
