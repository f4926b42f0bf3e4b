"""``example_trainers/finetune``: a model is pre-trained, and then fine-tuned, in fewer steps than its README has."""

import math
import shutil
import sys
from pathlib import Path

from checkout import ROOT
from fork_server import run
from safetensors.torch import load_file
from transformers_workshop import Finished, Workshop

SHORT = {"max_steps": 6, "validate_every": 6, "checkpoint_every": 6, "sample_every": 6}


def test_both_jobs_run_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "finetune"
    shutil.copytree(ROOT / "example_trainers/finetune", folder, ignore=shutil.ignore_patterns("data", "runs"))
    prepared = run([sys.executable, "prepare_data.py"], cwd=folder, text=True)
    assert prepared.returncode == 0, prepared.stderr
    short = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    base, chat = (Finished(0, "", folder / "runs" / name) for name in ("base", "chat"))

    code, said = Workshop(folder).command("run", "pretrain.json", *short)
    assert code == 0, said
    (of_base,) = base.validations()
    assert of_base["val/perplexity"] < 2048  # that of guessing
    weights = f'inputs.model="{base.trained(6)}"'
    code, said = Workshop(folder).command("run", "finetune.json", *short, "--set", weights)
    assert code == 0, said
    (of_chat,) = chat.validations()
    assert math.isfinite(of_chat["val/loss"])
    assert all("lora" in name for name in load_file(chat.trained(6) / "adapter_model.safetensors"))
    for number, function in enumerate(("shutil.copytree", "statistics.mean")):
        text = (chat.path / f"samples/step-000006/{number}/sample.txt").read_text()
        assert text.startswith(f"user: What does {function} do?")
