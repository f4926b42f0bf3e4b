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


#: As a team that uses NeMo has one: a configuration, a tokenizer of its own, texts.
NEMO = '''
import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Bytes(pl.LightningModule):
    """A language model over bytes."""

    def __init__(self, cfg, trainer=None):
        super().__init__()
        self.cfg = cfg
        self.embedding = nn.Embedding(257, cfg.hidden_size)
        self.rnn = nn.GRU(cfg.hidden_size, cfg.hidden_size, batch_first=True)
        self.head = nn.Linear(cfg.hidden_size, 257)

    def on_before_batch_transfer(self, batch, dataloader_idx):
        texts = [text.encode()[: self.cfg.max_seq_len] for text in batch[self.cfg.dataset_text_field]]
        rows = [torch.tensor([256, *text]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=256)

    def training_step(self, batch, batch_idx):
        states, _ = self.rnn(self.embedding(batch[:, :-1]))
        loss = cross_entropy(self.head(states).flatten(0, 1), batch[:, 1:].flatten())
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        optim = self.cfg.optim
        optimizer = torch.optim.AdamW(self.parameters(), lr=optim.lr, weight_decay=optim.weight_decay)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=optim.sched.warmup_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}
'''


@pytest.fixture
def server(make_server: Callable[..., Any], service_site: Any, models: Path, tmp_path: Path) -> Any:
    """A service that has the models, and import paths for the module of a team."""
    (service_site.path / "team_nemo.py").write_text(NEMO)
    (models / "gpt.yaml").write_text("model:\n  hidden_size: 16\n  optim: {lr: 1.0}\n")
    return make_server(
        http=f'import_paths = true\ndata_roots = ["{models}"]\ncheckpoint_roots = ["{tmp_path}"]',
        HF_HOME=str(tmp_path / "cache"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )


def test_the_frameworks_of_the_specification_train_in_its_words_and_tell_mistakes(
    server: Any, models: Path, tmp_path: Path
) -> None:
    def train(framework: str, run_id: str, model_id: str, extra_args: Any, **fields: Any) -> Any:
        places = {"checkpoint_base_uri": f"{tmp_path}/mirror", "dataset_uri": f"{models}/train.jsonl", **fields}
        known = {"dataset_text_field": "body", "batch_size": 4, "max_steps": 4, **extra_args}
        request = {"framework": framework, "run_id": run_id, "model_id": model_id, "extra_args": known, **places}
        return server.request("POST", "/train", json=request, timeout=600)

    wrong = train("hf", "wrong", "tiny", {"max_seq_length": 32, "eval_batch_size": 2})
    assert wrong.status == 400, wrong.body
    assert [one["pointer"] for one in wrong.json["errors"]] == [
        "/extra_args/max_seq_length",
        "/extra_args/eval_batch_size",
    ]
    assert "max_seq_len" in wrong.json["errors"][0]["hint"]

    gpt2, often = str(models / "gpt2"), {"logging_steps": 1, "save_steps": 2}
    llama = {"inputs": {"model": str(models / "llama")}, "max_seq_len": 32, "lr": 1e-3}
    nemo = {"module": "team_nemo:Bytes", "max_seq_len": 12, "lr": 0.01, "warmup_steps": 2, **often}
    jobs: dict[str, tuple[str, str, dict[str, Any]]] = {
        "meta": ("meta", "llama", llama),
        "hf": ("hf", gpt2, {"lr": 1e-3, "gradient_accumulation": 2, **often}),
        "nemo": ("nemo", "byte-gpt", nemo),
        "no-model": ("hf", "meta-llama/Llama-3-70b", {}),
        "fp16": ("hf", gpt2, {"precision": "fp16"}),
    }
    for run_id, (framework, model_id, extra_args) in jobs.items():
        config = {"config_path": f"{models}/gpt.yaml"} if framework == "nemo" else {}
        answer = train(framework, run_id, model_id, extra_args, **config)
        assert answer.status == 201, answer.body
        assert (answer.json["framework"], answer.headers["location"]) == (framework, f"/train/{framework}-{run_id}")
    ended = {run_id: server.wait_ended(run_id, seconds=600)["status"] for run_id in jobs}

    statuses = {"meta": "succeeded", "hf": "succeeded", "nemo": "succeeded", "no-model": "failed", "fp16": "failed"}
    assert ended == statuses, server.log
    assert server.request("GET", "/train/hf-hf").json["status"] == "succeeded"
    assert (server.runs / "meta/checkpoints/step-000004/trainer/model.safetensors").exists()
    for run_id in ("hf", "nemo"):
        events = map(json.loads, (server.runs / run_id / "logs/events.jsonl").read_text().splitlines())
        losses = [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"]
        assert (len(losses), losses[-1] < losses[0]) == (4, True), (run_id, losses)
        saved = tmp_path / f"mirror/{run_id}/framework={run_id}/checkpoints"
        assert sorted(one.name for one in saved.glob("*.json")) == ["step-000002.json", "step-000004.json"]
        assert (saved.parent / "config/run.json").exists()
    for run_id, pointer, message in (
        ("no-model", "/hyperparams/model_id", "no model in the Hugging Face cache"),
        ("fp16", "/precision", "does not train in fp16"),
    ):
        result = (server.runs / run_id / "result.json").read_text()
        assert pointer in result, result
        assert message in result, result
