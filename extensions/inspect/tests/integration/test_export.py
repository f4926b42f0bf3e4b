"""``hostcore export``: the weights of a checkpoint for other programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fork_server import ran

TRAINER = """
import torch
from pathlib import Path
from hostcore_hookspecs import StepResult, TensorFile

class Trainer:
    def configure(self, ctx):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
        return {"kind": ctx.hyperparams.get("kind"), "model": model}

    def prepare_batch(self, raw_batch):
        return raw_batch

    def train_step(self, state):
        with torch.no_grad():
            for one in state["model"].parameters():
                one += 1
        return StepResult(metrics={"loss": 1.0})

    def state_dict(self, state):
        weights = dict(state["model"].state_dict())
        weights["tied"] = weights["0.weight"]
        if state["kind"] == "pretrained":
            return {"weights": TensorFile("model.safetensors", {k: v for k, v in weights.items() if k != "tied"})}
        if state["kind"] == "two":
            return {"first": weights, "second": weights, "step": 3}
        return {"model": weights, "ema": {"0.weight": weights["0.weight"] * 2}, "optimizer": {"lr": 0.1}}

    def load_state_dict(self, state, payload): ...

    def save_checkpoint(self, state, output_dir):
        if state["kind"] == "pretrained":
            Path(output_dir, "config.json").write_text("{}")
            Path(output_dir, "tokenizer").mkdir()
            Path(output_dir, "tokenizer", "vocabulary.txt").write_text("a b")
        return {}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    (folder / "export_trainer.py").write_text(TRAINER)
    for kind in ("plain", "pretrained", "two"):
        job = {
            "run_id": kind,
            "trainer": "export_trainer:Trainer",
            "hyperparams": {"kind": kind},
            "max_steps": 4,
            "checkpoint_every": 2,
            "terminal": False,
        }
        (folder / "job.json").write_text(json.dumps({**job, "keep_checkpoints": 9}))
        assert ran(["run", "job.json", "--in-process"], cwd=folder).returncode == 0
    return folder


@pytest.fixture
def exported(runs: Path, tmp_path: Path) -> Callable[..., Any]:
    """``exported("plain", "--step", "2")``: the document; its errors with another code."""

    def export(run: str, *options: str, code: int = 0) -> Any:
        ended = ran(["export", run, str(tmp_path / "out"), *options, "--json"], cwd=runs, text=True)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return json.loads(ended.stdout)

    return export


def test_tensors_are_those_of_the_checkpoint_in_each_format(exported: Any, runs: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from torch.distributed import checkpoint

    found = exported("plain")
    assert (found["step"], found["format"], found["part"], found["files"]) == (
        4, "safetensors", "model", ["model.safetensors"],
    )  # fmt: skip
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert sorted(tensors) == ["0.bias", "0.weight", "1.bias", "1.weight", "tied"]
    stored = load_file(runs / "runs/plain/checkpoints/step-000004/state.safetensors")
    assert all(torch.equal(tensors[name], stored[f"/model/{name}"]) for name in tensors if name != "tied")
    assert torch.equal(tensors["tied"], tensors["0.weight"])
    assert found["elements"] == sum(one.numel() for one in tensors.values())

    (tmp_path / "out").rename(tmp_path / "safetensors")
    exported("plain", "--format", "torch")
    assert torch.load(tmp_path / "out/model.pt", weights_only=True).keys() == tensors.keys()
    (tmp_path / "out").rename(tmp_path / "torch")
    exported("plain", "--format", "dcp")
    read = {name: torch.zeros_like(one) for name, one in tensors.items()}
    checkpoint.load(read, checkpoint_id=tmp_path / "out", no_dist=True)
    assert all(torch.equal(read[name], one) for name, one in tensors.items())


def test_an_older_checkpoint_another_part_and_another_dtype(exported: Any, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    exported("plain", "--step", "2")
    (tmp_path / "out").rename(tmp_path / "older")
    exported("plain", "--part", "ema", "--dtype", "bf16")
    older, average = (load_file(tmp_path / name / "model.safetensors") for name in ("older", "out"))
    assert average.keys() == {"0.weight"}
    assert torch.equal(average["0.weight"], ((older["0.weight"] + 2) * 2).to(torch.bfloat16))


def test_files_for_from_pretrained_are_copied(exported: Any, tmp_path: Path) -> None:
    found = exported("pretrained")
    assert (found["format"], found["elements"]) == ("hf", None)
    assert found["files"] == ["config.json", "model.safetensors", "tokenizer/vocabulary.txt"]
    assert (tmp_path / "out/tokenizer/vocabulary.txt").read_text() == "a b"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["plain", "--format", "hf"], "writes no config.json", "--format safetensors"),
        (["plain", "--step", "3"], "there is no checkpoint of step 3", "those of 2, 4"),
        (["plain", "--step", "best"], "nothing was best yet", "best-checkpoint"),
        (["plain", "--part", "optimizer"], "no tensors at 'optimizer'", "'model', 'ema'"),
        (["two"], "several tensors, and none that is called model", "'first', 'second'"),
        (["pretrained", "--format", "hf", "--dtype", "bf16"], "copied as they are", "--format safetensors"),
        (["nowhere"], "there is no run 'nowhere'", "hostcore list"),
    ],
)
def test_what_cannot_be_exported_is_one_error_and_no_folder(
    exported: Any, tmp_path: Path, arguments: list[str], message: str, hint: str
) -> None:
    (error,) = exported(*arguments, code=2)["errors"]
    assert message in error["message"]
    assert hint in error["hint"]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_and_a_folder_that_exists_are_refused(exported: Any, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (error,) = exported("plain", code=2)["errors"]
    assert "exists" in error["message"]
    (tmp_path / "out").rmdir()
    state = runs / "runs/two/checkpoints/step-000004/state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"\x7f")
    (error,) = exported("two", "--part", "first", code=2)["errors"]
    assert error["code"] == "checkpoint.damaged"
    assert list(tmp_path.iterdir()) == []
