"""``POST /train`` with the frameworks of its specification: a model is trained for real, and mistakes are told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers_workshop import GPT2, LLAMA, make_workshop, texts


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts and two models, each with its tokenizer."""
    workshop = make_workshop(tmp_path_factory.mktemp("models"))
    for name, config in (("llama", LLAMA), ("gpt2", GPT2)):
        shutil.copytree(workshop.path / "tokenizer", workshop.path / workshop.model(name, config), dirs_exist_ok=True)
    rows = "".join(json.dumps({"body": text}) + "\n" for text in texts())
    (workshop.path / "train.jsonl").write_text(rows)
    return workshop.path


def test_the_frameworks_train_and_tell_mistakes(
    make_server: Callable[..., Any], until: Callable[..., Any], models: Path, tmp_path: Path
) -> None:
    server = make_server(
        http=f'data_roots = ["{models}"]\ncheckpoint_roots = ["{tmp_path}"]',
        HF_HOME=str(tmp_path / "cache"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )

    def post(framework: str, run_id: str, model_id: str, **extra_args: Any) -> Any:
        request = {
            "framework": framework,
            "model_id": model_id,
            "run_id": run_id,
            "checkpoint_base_uri": f"{tmp_path}/mirror",
            "dataset_uri": f"{models}/train.jsonl",
            "extra_args": {"dataset_text_field": "body", "max_steps": 4, "batch_size": 4, **extra_args},
        }
        return server.request("POST", "/train", json=request, timeout=200)

    wrong = post("hf", "wrong", "tiny", max_seq_length=32, eval_batch_size=2)
    assert wrong.status == 400, wrong.body
    assert [one["pointer"] for one in wrong.json["errors"]] == [
        "/extra_args/max_seq_length",
        "/extra_args/eval_batch_size",
    ]
    assert "max_seq_len" in wrong.json["errors"][0]["hint"]

    jobs = {
        "meta": ("meta", "llama", {"inputs": {"model": str(models / "llama")}, "max_seq_len": 32, "lr": 1e-3}),
        "hf": (
            "hf",
            str(models / "gpt2"),
            {"lr": 1e-3, "logging_steps": 1, "save_steps": 2, "gradient_accumulation": 2},
        ),
        "not-llama": ("meta", str(models / "gpt2"), {}),
        "no-model": ("hf", "meta-llama/Llama-3-70b", {}),
        "too-long": ("hf", str(models / "gpt2"), {"max_seq_len": 4096}),
        "fp16": ("hf", str(models / "gpt2"), {"precision": "fp16"}),
    }
    for run_id, (framework, model_id, extra_args) in jobs.items():
        answer = post(framework, run_id, model_id, **extra_args)
        assert answer.status == 201, answer.body
        assert answer.json["framework"] == framework
    ended = {run_id: server.wait_ended(run_id, seconds=300) for run_id in jobs}

    assert {one: job["status"] for one, job in ended.items()} == {
        "meta": "succeeded",
        "hf": "succeeded",
        "not-llama": "failed",
        "no-model": "failed",
        "too-long": "failed",
        "fp16": "failed",
    }, ended
    events = [json.loads(line) for line in (server.runs / "hf/logs/events.jsonl").read_text().splitlines()]
    losses = [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert (server.runs / "meta/checkpoints/step-000004/trainer/model.safetensors").exists()
    saved = tmp_path / "mirror/hf/framework=hf/checkpoints"
    assert sorted(one.name for one in saved.glob("*.json")) == ["step-000002.json", "step-000004.json"]

    for run_id, pointer, message in (
        ("not-llama", "/hyperparams/model_id", "a model of type 'gpt2'"),
        ("no-model", "/hyperparams/model_id", "no model in the Hugging Face cache"),
        ("too-long", "/hyperparams/max_seq_len", "the model takes 128 tokens"),
        ("fp16", "/precision", "does not train in fp16"),
    ):
        result = (server.runs / run_id / "result.json").read_text()
        assert pointer in result, result
        assert message in result, result
