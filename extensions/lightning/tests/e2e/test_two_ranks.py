"""Two ranks: DDP, values that are reduced over them, and a run that is killed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lit_jobs import HERE, by_command, job, section


def run(folder: Path, module: str, *, name: str, **keys: Any) -> tuple[dict[int, float], list[dict[str, float]]]:
    """The losses of a run by step, and what its validations found."""
    given = {**job(module, **keys), "run_id": name}
    if "devices" in keys:
        del given["device"]
    (folder / f"{name}.json").write_text(json.dumps(given))
    code, said = by_command(folder, "run", f"{name}.json")
    assert code == 0, said
    losses, validated = {}, []
    for line in (folder / f"runs/{name}/logs/events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "metrics":
            losses[event["step"]] = event["metrics"]["train/loss"]
        elif event["event"] == "validation":
            validated.append(event["metrics"])
    return losses, validated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(HERE / "user_modules.py", tmp_path)
    return tmp_path


def test_two_ranks_learn_what_one_does_with_twice_the_rows(folder: Path) -> None:
    """The same up to rounding, without dropout; metrics of the validation are over the rows of both."""
    keys = {"validate_every": "epoch", "validation": section(39)}
    init = {"init": {"dropout": 0.0}}
    one, first = run(folder, "Synced", name="one", dataset=section(160, 16), hyperparams=init, **keys)
    two, second = run(
        folder, "Synced", name="two", dataset=section(160, 8), devices=["cpu", "cpu"], hyperparams=init, **keys
    )
    assert two == pytest.approx(one, rel=1e-4)
    for alone, together in zip(first, second, strict=True):
        assert together["val/f1"] == pytest.approx(alone["val/f1"], abs=1e-6)
        assert together["val/auroc"] == pytest.approx(alone["val/auroc"], abs=1e-6)
        assert together["train/acc"] == pytest.approx(alone["train/acc"], abs=1e-6)


def test_manual_optimization(folder: Path) -> None:
    """Gradients of both ranks count: the same losses as one rank with all of the rows, up to rounding."""
    one, _ = run(folder, "ByHandPlain", name="one", dataset=section(160, 16))
    two, _ = run(folder, "ByHandPlain", name="two", dataset=section(160, 8), devices=["cpu", "cpu"])
    assert two == pytest.approx(one, rel=1e-4)
