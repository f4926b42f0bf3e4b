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


def losses_of(server: Any, run_id: str) -> list[float]:
    """The losses of a run, which have become smaller."""
    events = [json.loads(line) for line in (server.runs / run_id / "logs/events.jsonl").read_text().splitlines()]
    losses = [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"]
    assert losses[-1] < losses[0]
    return losses


def post(server: Any, run_id: str, mirror: Path, data: Path, *, extra_args: Any, **fields: Any) -> Any:
    places = {"checkpoint_base_uri": f"{mirror}/mirror", "dataset_uri": f"{data}/train.jsonl"}
    request = {"run_id": run_id, **places, "extra_args": {"dataset_text_field": "body", "batch_size": 4, **extra_args}}
    return server.request("POST", "/train", json={**request, **fields}, timeout=600)


def test_a_module_in_the_style_of_nemo_trains_in_the_words_of_the_specification(
    make_server: Callable[..., Any], service_site: Any, tmp_path: Path
) -> None:
    (service_site.path / "team_nemo.py").write_text(NEMO)
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"body": f"the {one} is what it is"} for one in ("cat", "dog", "bird", "fish") for _ in range(6)]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (data / "gpt.yaml").write_text("model:\n  hidden_size: 16\n  optim: {lr: 1.0}\n")
    server = make_server(
        http=f'import_paths = true\ndata_roots = ["{data}"]\ncheckpoint_roots = ["{tmp_path}"]', OMP_NUM_THREADS="1"
    )

    def train(run_id: str, **extra_args: Any) -> Any:
        known = {"max_seq_len": 12, "lr": 0.01, "warmup_steps": 2, "num_epochs": 2, "save_steps": 6, "logging_steps": 1}
        config = {"framework": "nemo", "model_id": "byte-gpt", "config_path": f"{data}/gpt.yaml"}
        given = {"module": "team_nemo:Bytes", **known, **extra_args}
        return post(server, run_id, tmp_path, data, extra_args=given, **config)

    wrong = train("wrong", max_seq_length=32)
    assert wrong.status == 400, wrong.body
    assert [one["pointer"] for one in wrong.json["errors"]] == ["/extra_args/max_seq_length"]

    answer = train("trained")
    assert answer.status == 201, answer.body
    assert answer.json["framework"] == "nemo"
    ended = server.wait_ended("trained", seconds=600)
    assert ended["status"] == "succeeded", (server.runs / "trained/result.json").read_text()
    assert len(losses_of(server, "trained")) == 12
    saved = tmp_path / "mirror/trained/framework=nemo/checkpoints"
    assert sorted(one.name for one in saved.glob("*.json")) == ["step-000006.json", "step-000012.json"]


def test_the_frameworks_train_and_tell_mistakes(
    make_server: Callable[..., Any], until: Callable[..., Any], models: Path, tmp_path: Path
) -> None:
    server = make_server(
        http=f'data_roots = ["{models}"]\ncheckpoint_roots = ["{tmp_path}"]',
        HF_HOME=str(tmp_path / "cache"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )

    def train(framework: str, run_id: str, model_id: str, **extra_args: Any) -> Any:
        given = {"max_steps": 4, **extra_args}
        return post(server, run_id, tmp_path, models, framework=framework, model_id=model_id, extra_args=given)

    wrong = train("hf", "wrong", "tiny", max_seq_length=32, eval_batch_size=2)
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
        "no-model": ("hf", "meta-llama/Llama-3-70b", {}),
        "fp16": ("hf", str(models / "gpt2"), {"precision": "fp16"}),
    }
    for run_id, (framework, model_id, extra_args) in jobs.items():
        answer = train(framework, run_id, model_id, **extra_args)
        assert answer.status == 201, answer.body
        assert answer.json["framework"] == framework
    ended = {run_id: server.wait_ended(run_id, seconds=600) for run_id in jobs}

    statuses = {"meta": "succeeded", "hf": "succeeded", "no-model": "failed", "fp16": "failed"}
    assert {one: job["status"] for one, job in ended.items()} == statuses, ended
    assert len(losses_of(server, "hf")) == 4
    assert (server.runs / "meta/checkpoints/step-000004/trainer/model.safetensors").exists()
    saved = tmp_path / "mirror/hf/framework=hf/checkpoints"
    assert sorted(one.name for one in saved.glob("*.json")) == ["step-000002.json", "step-000004.json"]

    for run_id, pointer, message in (
        ("no-model", "/hyperparams/model_id", "no model in the Hugging Face cache"),
        ("fp16", "/precision", "does not train in fp16"),
    ):
        result = (server.runs / run_id / "result.json").read_text()
        assert pointer in result, result
        assert message in result, result
