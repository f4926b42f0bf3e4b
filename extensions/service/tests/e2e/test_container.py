"""``python -m hostcore_service.container``: what a container of the image does, as other hosts start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import popen
from waiting import wait_until

from hostcore_service.container import torchrun

TRAINER = """
import os
import time
import torch
from hostcore_hookspecs import Capabilities, StepResult

class Meta:
    CAPABILITIES = Capabilities(distributed=True, accumulate=True)

    def setup(self, ctx):
        torch.set_num_threads(1)

    def configure(self, ctx):
        return {"x": torch.tensor(3.0)}

    def prepare_batch(self, raw_batch, state, ctx):
        return raw_batch

    def train_step(self, prepared_batch, state, ctx):
        time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
        state["x"] = (state["x"] + 2 / state["x"]) / 2
        return StepResult(metrics={"error": (state["x"] ** 2 - 2) ** 2, "rate": ctx.hyperparams["lr"]})

    def state_dict(self, state):
        return dict(state)

    def load_state_dict(self, state, payload):
        state.update(payload)
"""
#: As the specification's example has them.
EXTRA_ARGS = {"max_steps": 20, "lr": 2e-5, "gradient_accumulation": 2, "device": "cpu", "batch_size": 8}


@attrs.frozen
class Container:
    """A folder in place of a container's file system, and the environment that its host sets."""

    folder: Path
    environment: dict[str, str]

    def start(self, *command: str, **more: str) -> subprocess.Popen[str]:
        return popen(
            command,
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """The entry point, with arguments."""
        process = self.start(sys.executable, "-P", "-m", "hostcore_service.container", *arguments, **more)
        out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def document(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text())

    @property
    def result(self) -> Any:
        return self.document("runs/meta_demo_001/result.json")


@pytest.fixture
def container(site: Any, tmp_path: Path) -> Container:
    site.install(
        "meta-trainer",
        modules={"meta_trainer.py": TRAINER},
        entry_points={"hostcore.trainers": {"meta": "meta_trainer:Meta"}},
    )
    folder = tmp_path / "app"
    (folder / "data").mkdir(parents=True)
    pq.write_table(pa.table({"x": list(range(640))}), folder / "data" / "train.parquet")
    cleared = ("TRAINER_", "WORKER_", "HOSTCORE_", "PET_", "RANK", "WORLD_", "LOCAL_", "MASTER_")
    inherited = {name: value for name, value in site.environment.items() if not name.startswith(cleared)}
    base = f"{folder}/mirror"
    prefix = f"{base}/meta_demo_001/framework=meta-trainer-meta"
    described = {
        # hostcore-transformers has a trainer of this name, too.
        "FRAMEWORK": "meta-trainer/meta",
        "MODEL_ID": "meta-llama-3-70b",
        "RUN_ID": "meta_demo_001",
        "NUM_NODES": "1",
        "GPUS_PER_NODE": "1",
        "CHECKPOINT_BASE_URI": base,
        "CHECKPOINT_PREFIX": prefix,
        "CHECKPOINTS_URI": f"{prefix}/checkpoints",
        "LOGS_URI": f"{prefix}/logs",
        "CONFIG_URI": f"{prefix}/config",
        "DATASET_URI": f"{folder}/data/",
        "TRAINING_EXTRA_ARGS_JSON": json.dumps(EXTRA_ARGS),
    }
    return Container(folder, {**inherited, **described, "HOSTCORE_RUNS_DIR": "runs"})


def test_the_environment_of_the_specification_trains_and_another_container_goes_on(container: Container) -> None:
    # As the operator of PyTorchJobs sets them for a single pod.
    done = container.run(RANK="0", WORLD_SIZE="1", MASTER_ADDR="demo-master-0", MASTER_PORT="23456")
    assert done.returncode == 0, done.stderr
    assert container.result["step"] == 20
    record = container.document("runs/meta_demo_001/config/run.json")["job"]
    assert record["hyperparams"] == {"model_id": "meta-llama-3-70b", "lr": 2e-5}
    assert record["accumulate"] == 2
    mirror = container.folder / "mirror/meta_demo_001/framework=meta-trainer-meta"
    assert (mirror / "checkpoints/step-000020.json").is_file()

    shutil.rmtree(container.folder / "runs")  # the pod's own
    more = json.dumps({**EXTRA_ARGS, "max_steps": 30})
    again = container.run(RESUME_FROM_CHECKPOINT="1", TRAINING_EXTRA_ARGS_JSON=more)
    assert again.returncode == 0, again.stderr
    assert "resumed from checkpoints/step-000020" in again.stderr
    assert (container.result["step"], container.result["attempt"]) == (30, 2)


def test_what_describes_no_job_is_told_in_its_own_words_and_other_arguments_are_a_command(container: Container) -> None:
    nowhere = {"DATASET_URI": f"{container.folder}/nothing/"}
    for arguments, variables, says in (
        (
            [],
            {"RESUME_FROM_CHECKPOINT": "1"},
            "error: RESUME_FROM_CHECKPOINT: there is no run 'meta_demo_001' to resume",
        ),
        (["--metric-every", "often"], nowhere, "error: --metric-every: expected an integer"),
        ([], nowhere, "error: DATASET_URI: "),
        (["ruin", "job.json"], {}, "Did you mean 'run'?"),
    ):
        done = container.run(*arguments, **variables)
        assert (done.returncode, "Traceback" in done.stderr, "/metric_every" in done.stderr) == (2, False, False)
        assert says in done.stderr
    assert not (container.folder / "runs/meta_demo_001").exists()
    listed = container.run("list", "--json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, {"runs": []})
    assert container.run("--version").stdout.startswith("hostcore")


def test_torchrun_with_the_flags_of_train_py_runs_two_ranks(container: Container) -> None:
    (container.folder / "train.py").write_text("from hostcore_service.container import main\nmain()\n")
    names = ("framework", "run_id", "checkpoint_base_uri", "checkpoint_prefix", "dataset_uri", "logs_uri", "model_id")
    flags = [part for name in names for part in (f"--{name.replace('_', '-')}", container.environment[name.upper()])]
    extra = ["--max-steps", "20", "--lr", "2e-05", "--device", "cpu", "--batch-size", "8"]
    # The operator's variables are those of the machine; torchrun sets its own for the ranks.
    operators = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "GPUS_PER_NODE": "2"}
    cleared = dict.fromkeys((name.upper() for name in names), "")
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    variables = {**operators, **cleared, "TRAINING_EXTRA_ARGS_JSON": ""}
    process = container.start(*ranks, *flags, *extra, **variables)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert (container.result["status"], container.result["step"]) == ("succeeded", 20)
    assert container.document("runs/meta_demo_001/config/run.json")["world_size"] == 2


def test_torchrun_gives_the_ranks_the_arguments_as_they_were_given() -> None:
    """torchrun's own program on one machine, with a program in place of the run."""
    given = ["--prompt", "$$5 for ${local_rank} of $HOME, {}", "--extra-args-json", '{"a": "$$"}']
    command = torchrun(given, {"NUM_NODES": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})
    assert command is not None
    cut = command.index("--no-python")
    program = [sys.executable, "-IS", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    alone = [*command[:4], "--standalone", *command[cut : cut + 1], *program, *command[cut + 5 :]]
    done = subprocess.run(alone, check=False, capture_output=True, text=True, timeout=300)  # how it ends is torch's
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == given


def test_as_the_first_process_of_a_container_it_heeds_a_stop_and_writes_a_checkpoint(container: Container) -> None:
    unshare = shutil.which("unshare")
    alone = ["--user", "--map-root-user"] if os.getuid() else []
    alone += ["--pid", "--fork", "--mount-proc", "--kill-child"]
    if unshare is None or subprocess.run([unshare, *alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces of processes can be made here")
    arguments = [
        sys.executable,
        "-P",
        "-m",
        "hostcore_service.container",
        "--max-steps",
        "100000",
        "--metric-every",
        "1",
    ]
    environment = {"TRAINING_EXTRA_ARGS_JSON": '{"lr": 1, "device": "cpu"}', "STEP_SECONDS": "0.02"}
    process = container.start(unshare, *alone, *arguments, **environment)
    try:
        events = container.folder / "runs/meta_demo_001/logs/events.jsonl"
        wait_until(lambda: events.exists() and '"event":"metrics"' in events.read_text(), "a step")
        [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)  # from outside, as a container runtime does
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 75, err
    assert container.result["status"] == "preempted"
    assert (container.folder / "runs/meta_demo_001" / container.result["final_checkpoint"]).is_dir()
