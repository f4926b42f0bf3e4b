"""What the variables and flags of a container describe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import all_errors
from hostcore_hookspecs import HostcoreError
from hostcore_service.container import Described, described_job, forget_machines, plan_described_job, torchrun

#: The example of the specification, as the original service put it into a pod.
ENVIRONMENT = {
    "FRAMEWORK": "meta",
    "MODEL_ID": "meta-llama-3-70b",
    "RUN_ID": "meta_demo_001",
    "NUM_NODES": "4",
    "GPUS_PER_NODE": "8",
    "CHECKPOINT_BASE_URI": "s3://deepfinery-training/runs",
    "CHECKPOINT_PREFIX": "s3://deepfinery-training/runs/meta_demo_001/framework=meta",
    "CHECKPOINTS_URI": "s3://deepfinery-training/runs/meta_demo_001/framework=meta/checkpoints",
    "LOGS_URI": "s3://deepfinery-training/runs/meta_demo_001/framework=meta/logs",
    "CONFIG_URI": "s3://deepfinery-training/runs/meta_demo_001/framework=meta/config",
    "DATASET_URI": "s3://deepfinery-datasets/aml/v1/",
    "TRAINING_EXTRA_ARGS_JSON": '{"max_steps": 6000, "lr": 2e-5, "gradient_accumulation": 16}',
}
MACHINES = {"RANK": "2", "MASTER_ADDR": "demo-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "4"}


def document(*arguments: str, **environment: str) -> dict[str, Any]:
    return dict(described_job(arguments, {**ENVIRONMENT, **environment}).job.document)


def messages(*arguments: str, **environment: str) -> list[str]:
    with pytest.raises(HostcoreError) as caught:
        described_job(arguments, {**ENVIRONMENT, **environment})
    errors = all_errors(caught.value)
    assert [one.pointer for one in errors] == [None] * len(errors)
    return [one.message for one in errors]


def test_the_variables_of_the_specifications_example_describe_its_job() -> None:
    assert document() == {
        "trainer": "meta",
        "run_id": "meta_demo_001",
        "checkpoint_base_uri": "s3://deepfinery-training/runs",
        "resume_from_checkpoint": "auto",
        "hyperparams": {"model_id": "meta-llama-3-70b", "lr": 2e-5},
        "labels": {},
        "annotations": {},
        "resources": {"num_nodes": 1},
        "max_steps": 6000,
        "accumulate": 16,
        "dataset": {"source": "hostcore-builtin-plugins/parquet", "parquet_paths": "s3://deepfinery-datasets/aml/v1/"},
    }


def test_the_flags_of_train_py_describe_the_same_job() -> None:
    names = ("framework", "model_id", "run_id", "checkpoint_base_uri", "checkpoint_prefix", "dataset_uri", "logs_uri")
    flags = [part for name in names for part in (f"--{name.replace('_', '-')}", ENVIRONMENT[name.upper()])]
    extra = ["--max-steps", "6000", "--lr=2e-5", "--gradient-accumulation", "16"]
    assert dict(described_job([*flags, *extra], {}).job.document) == document()


#: Arguments, a place in the job, and what is there: a flag wins over its variable, the JSON object over single flags.
FLAGS: list[tuple[list[str], str, object]] = [
    (["--run-id", "a", "--run-id=b"], "run_id", "b"),
    (["--x", "a", "--x", "b"], "x", "b"),
    (["--max-steps", "5", "--extra-args-json", '{"max_steps": 9}'], "max_steps", 9),
    (["--x", "7", "--extra-args-json", '{"max_steps": 9}'], "x", 7),
    (["--resume", "--max-steps", "5"], "resume_from_checkpoint", True),
    # Values are JSON if they read like it, and else text.
    (["--x", "3"], "x", 3),
    (["--x", "-1e-3"], "x", -0.001),
    (["--x=true"], "x", True),
    (["--x"], "x", True),
    (["--x", "--y", "1"], "x", True),
    (["--x="], "x", ""),
    (["--x", "[1, 2]"], "x", [1, 2]),
    *((["--x", text], "x", text) for text in ("True", "007", "NaN", "bf16 mixed", "a=b")),
]


@pytest.mark.parametrize(("arguments", "key", "value"), FLAGS)
def test_a_flag_says_what_it_reads_like(arguments: list[str], key: str, value: object) -> None:
    job = document(*arguments)
    said = job["hyperparams"][key] if key == "x" else job[key]
    assert (said, type(said)) == (value, type(value))


def test_resume_from_checkpoint_is_read_as_the_original_read_it() -> None:
    for word in ("1", "true", "True", "0", "false", ""):
        means = True if word in ("1", "true", "True") else "auto"
        assert document(RESUME_FROM_CHECKPOINT=word)["resume_from_checkpoint"] == means


JSON = "TRAINING_EXTRA_ARGS_JSON"
#: Arguments, variables, and what each of the errors says.
WRONG: list[tuple[list[str], dict[str, str], list[str]]] = [
    ([], {"RUN_ID": "", "DATASET_URI": ""}, ["no job is described: RUN_ID, DATASET_URI are not set"]),
    (["--framework", "a b"], {"RUN_ID": "../x"}, ["--framework: ", "RUN_ID: "]),
    ([], {JSON: '{"trainer": "x"}'}, [f'{JSON}: trainer: extra_args cannot set "trainer"']),
    (["--trainer", "x"], {}, ['--trainer: extra_args cannot set "trainer"']),
    ([], {JSON: "{"}, [f"{JSON}: not valid JSON"]),
    ([], {JSON: '{"a": 1, "a": 2}'}, ["given more than once"]),
    ([], {JSON: "[1]"}, [f"{JSON} is no JSON object"]),
    (["--extra-args-json", "NaN"], {}, ["--extra-args-json"]),
    ([], {"RESUME_FROM_CHECKPOINT": "maybe"}, ["RESUME_FROM_CHECKPOINT is 'maybe', and neither 1 nor 0"]),
    (["--run-id"], {}, ["--run-id has no value"]),
    (["--run-id", "a", "b"], {}, ["'b' is no flag"]),
    (["-x"], {}, ["'-x' is no flag"]),
]


@pytest.mark.parametrize(("arguments", "environment", "said"), WRONG)
def test_what_is_wrong_is_told_by_variable_and_by_flag(
    arguments: list[str], environment: dict[str, str], said: list[str]
) -> None:
    told = messages(*arguments, **environment)
    assert [part in message for part, message in zip(said, told, strict=True)] == [True] * len(said), told


def test_an_error_of_the_job_is_told_by_what_has_said_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    described = described_job(["--metric-every", "-3", "--max-steps=9"], {**ENVIRONMENT, "FRAMEWORK": "x:Trainer"})
    error = HostcoreError("expected something else", pointer="/metric_every")
    [named] = all_errors(described.as_said(error))
    assert (named.message, named.pointer) == ("--metric-every: expected something else", None)
    [kept] = all_errors(described.as_said(HostcoreError("is wrong", pointer="/seed")))
    assert (kept.message, kept.pointer) == ("is wrong", "/seed")
    assert [one.message for one in all_errors(described.as_said(HostcoreError("it has died")))] == ["it has died"]


class _Told:
    """What trainers take, as told."""

    def __init__(self, takes: bool) -> None:
        self._takes = takes

    def takes_model_id(self, trainer: str) -> bool:
        return self._takes


def _plan(
    described: Described, environment: dict[str, str], *, takes: bool = True, world_size: int | None = None
) -> Any:
    descriptions: Any = _Told(takes)
    return plan_described_job(described, environment, world_size=world_size, descriptions=descriptions)


def test_there_is_a_rank_for_each_gpu_of_one_machine_and_a_trainer_is_given_the_model_id_it_takes(
    tmp_path: Path,
) -> None:
    here = {"CHECKPOINT_BASE_URI": str(tmp_path), "DATASET_URI": str(tmp_path), "GPUS_PER_NODE": "2"}
    environment = {**ENVIRONMENT, "FRAMEWORK": "x:Trainer", **here}
    plain = described_job([], environment)
    spec = _plan(plain, environment).spec
    assert (spec.devices, spec.hyperparams["model_id"]) == (("cuda:0", "cuda:1"), "meta-llama-3-70b")
    for gpus in ("0", "1"):
        assert not _plan(plain, {**environment, "GPUS_PER_NODE": gpus}).spec.devices
    assert not _plan(plain, environment, world_size=2).spec.devices
    assert _plan(described_job(["--device", "cpu"], environment), environment).spec.device == "cpu"
    without = _plan(plain, environment, takes=False).spec
    assert "model_id" not in without.hyperparams
    assert without.annotations == {"hostcore/model-id": "meta-llama-3-70b"}


PET = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a"}
#: Variables of the machine, and what torchrun is told; None: it is not needed.
STARTED: list[tuple[dict[str, str], str | None]] = [
    ({**ENVIRONMENT, **MACHINES}, "--nnodes=4 --nproc-per-node=8 --node-rank=2 demo-master-0 23456"),
    ({**PET, "PET_MASTER_PORT": "29400"}, "--nnodes=2 --nproc-per-node=1 --node-rank=1 a 29400"),  # of TrainJobs
    ({**ENVIRONMENT, **MACHINES, "LOCAL_RANK": "0"}, None),
    ({**ENVIRONMENT, "NUM_NODES": "1"}, None),
    ({"NUM_NODES": ""}, None),
]
MISPLACED = [
    ({**ENVIRONMENT, **MACHINES, "MASTER_ADDR": ""}, "there are 4 machines, but MASTER_ADDR is not set"),
    ({"NUM_NODES": "1:2"}, "NUM_NODES is '1:2', and not a whole number"),
]


def test_on_several_machines_torchrun_takes_over_and_meets_where_the_operator_says() -> None:
    for environment, told in STARTED:
        command = torchrun(["--lr", "1"], environment)
        assert (command is None) is (told is None), environment
        if command is not None and told is not None:
            *counts, address, port = told.split()
            assert command[:4] == [sys.executable, "-P", "-m", "torch.distributed.run"]
            assert {*counts, f"--master-addr={address}", f"--master-port={port}"} <= {*command[4:]}
            assert command[-6:] == [sys.executable, "-P", "-m", "hostcore_service.container", "--lr", "1"]
    for environment, says in MISPLACED:
        with pytest.raises(HostcoreError, match=f"^{says}$"):
            torchrun([], environment)


def test_the_number_of_a_machine_is_not_taken_for_a_rank() -> None:
    machine, rank = {**MACHINES, "WORLD_SIZE": "8"}, {**MACHINES, "LOCAL_RANK": "0"}
    forget_machines(machine)
    forget_machines(rank)
    assert not {"RANK", "WORLD_SIZE"} & machine.keys()
    assert {"RANK", "WORLD_SIZE"} <= rank.keys()


def test_it_needs_nothing_that_comes_with_the_service() -> None:
    extras = ("pydantic", "fastapi", "starlette", "sqlalchemy", "alembic", "uvicorn")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({extras!r})); import hostcore_service.container"
    heavy = "; assert not {'torch', 'pyarrow', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-P", "-c", blocked + heavy], check=True, env=dict(os.environ))
