"""Results of a run on a device: the same after kills, in parts, in fp16, and without waiting for the device."""

import json
import re
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

#: In these steps a run kills itself: behind the update, before and behind a checkpoint.
KILLS = (1, 4, 5, 6, 9, 11, 15, 16, 22, 29)


def resume_until_it_ends(place: Any, run_id: str, *, kills: int) -> None:
    """Resume a run that kills itself, as often as it does."""
    codes = [place.command("run", f"{run_id}.json").code]
    while codes[-1] != 0:
        assert len(codes) <= kills, codes
        codes.append(place.command("resume", run_id).code)
    assert len(codes) == kills + 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_deterministic_run_is_the_same_bit_for_bit_after_ten_kills(place: Any, precision: str) -> None:
    given = {"deterministic": True, "dropout": 0.1, "precision": precision, "metric_every": 1, "checkpoint_every": 2}
    kills = KILLS if precision == "fp32" else KILLS[-2:]
    place.succeed("whole", **given)
    place.job("killed", kills=kills, **given)
    resume_until_it_ends(place, "killed", kills=len(kills))
    assert place.losses("killed") == place.losses("whole")
    assert place.state("killed") == place.state("whole") != {}


def test_fp16_goes_on_after_a_kill_with_the_scaler_as_it_was(place: Any) -> None:
    given = {"deterministic": True, "precision": "fp16", "metric_every": 1, "checkpoint_every": 5}
    place.succeed("whole", **given)
    place.job("killed", kills=[13], **given)
    resume_until_it_ends(place, "killed", kills=1)
    assert place.state("killed") == place.state("whole") != {}
    scalers = [json.loads((place.path / f"runs/{one}/checkpoints/step-000030/host.json").read_bytes())
               for one in ("whole", "killed")]  # fmt: skip
    assert '"scale"' in json.dumps(scalers[0])
    assert find(scalers[0], "scaler") == find(scalers[1], "scaler")


def find(value: Any, key: str) -> Any:
    """Return the first value of a key in nested JSON; None if there is none."""
    if isinstance(value, dict) and key in value:
        return value[key]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := find(one, key)) is not None), None)


def test_a_step_for_which_memory_ran_out_is_made_in_parts_and_trains_the_same_up_to_rounding(place: Any) -> None:
    place.succeed("whole", metric_every=1)
    # Four rows fit into the trainer's ROOM, and eight do not.
    place.succeed("parts", metric_every=1, fits=4, row_bytes=(64 << 20) if place.is_gpu else 0)
    (split,) = place.events("parts", "batch_split")
    assert (split["step"], split["rows"], split["micro_batch_rows"]) == (1, 16, 4)
    assert "out of memory" in split["error"]
    assert place.losses("parts") == pytest.approx(place.losses("whole"), rel=1e-4)
    whole, parts = (load_file(place.checkpoint(one) / "state.safetensors") for one in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.allclose(parts[name], one, rtol=1e-3, atol=1e-4) for name, one in whole.items())


def test_an_error_of_a_kernel_is_one_clear_error_with_its_step_and_leaves_the_device_free(place: Any) -> None:
    before = place.memory()
    said = place.command("run", place.job("a", asserts_at=8))
    assert said.code == 1
    error = place.result("a")["error"]
    assert error["message"].startswith("CUDA error: "), error["message"]  # cuBLAS may be the first to meet it
    step = int(re.search(r"of step (\d+)", error["hint"])[1])
    assert "CUDA_LAUNCH_BLOCKING=1" in error["hint"]
    assert 8 <= step <= 11, "metrics are read at step 10"
    assert len(re.findall(r"(?m)^error: ", said.err)) == 1, said.err
    place.require_free(before)
    resumed = place.command("run", place.job("b", max_steps=5))
    assert resumed.code == 0, resumed


def test_the_built_in_callbacks_do_not_make_the_process_wait_between_cadence_steps(place: Any) -> None:
    callbacks = [
        "nonfinite-guard",
        {"use": "grad-clip", "max_norm": 1.0},
        "lr-monitor",
        "throughput",
        "oom-hint",
        "csv-metrics",
    ]
    place.succeed("a", callbacks=callbacks, never_waits=True, metric_every=10, checkpoint_every=10)
    assert {"train/loss", "train/grad_norm", "train/lr"} <= place.events("a", "metrics")[0]["metrics"].keys()


def test_a_lightning_module_trains_in_bf16(place: Any) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    pytest.importorskip("hostcore_lightning", reason="hostcore-lightning is not installed")
    (place.path / "lit.py").write_text(LIT)
    keys = {"trainer": "lightning", "precision": "bf16", "max_steps": 20, "metric_every": 10}
    job = json.loads(place.job("lit", **keys).read_text())
    del job["dataset"]
    job["hyperparams"] = {"module": "lit:Module", "datamodule": "lit:Data"}
    (place.path / "lit.json").write_text(json.dumps(job))
    said = place.command("run", "lit.json")
    assert said.code == 0, said
    losses = place.losses("lit")
    assert losses[20] < losses[10]


def test_a_llama_trains_in_bf16(place: Any) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("hostcore_transformers", reason="hostcore-transformers is not installed")
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers_workshop import LLAMA, save_tokenizer, texts

    save_tokenizer(place.path / "tokenizer", pad_token="<pad>", eos_token="</s>")
    pq.write_table(pa.table({"text": texts()}), place.path / "train.parquet")
    keys = {"trainer": "transformers", "precision": "bf16", "max_steps": 20, "metric_every": 10}
    job = json.loads(place.job("llama", **keys).read_text())
    job["dataset"] = {"parquet_paths": ["train.parquet"], "batch_size": 8, "shuffle": True}
    job["hyperparams"] = {"config": LLAMA, "tokenizer": "tokenizer", "max_length": 32, "learning_rate": 0.01}
    (place.path / "llama.json").write_text(json.dumps(job))
    said = place.command("run", "llama.json")
    assert said.code == 0, said
    losses = place.losses("llama")
    assert losses[20] < losses[10]


LIT = """
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        x = torch.randn(320, 4, generator=torch.Generator().manual_seed(3))
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, drop_last=True)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = (self.net(x).float() - y).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
"""
