"""The callback ``replay-check`` with unchanged modules, whose steps may change anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from lit_jobs import job, section

import hostcore_lightning.trainer  # noqa: F401 - before the first run, which would count it
from hostcore.errors import Errors
from hostcore.in_process import run
from hostcore.runs.directory import RunDirectory
from hostcore_inspect.bits import compare_bits

CHECK = [{"use": "replay-check", "every": 1}]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(run_id: str, module: str, **keys: Any) -> Any:
    hyperparams = {"module": module, **keys.pop("hyperparams", {})}
    keys = {"epochs": None, "max_steps": 24, "checkpoint_every": 4, "keep_checkpoints": 9, **keys}
    return run(job("Plain", hyperparams=hyperparams, run_id=run_id, **keys))


def warnings(run_id: str) -> list[str]:
    events = map(json.loads, Path(f"runs/{run_id}/logs/events.jsonl").read_text().splitlines())
    return [one["message"] for one in events if one["event"] == "warning" and "replay-check" in one["message"]]


@pytest.mark.parametrize(
    ("module", "keys"),
    [
        ("lit_unsaved:Keeper", {"hyperparams": {"callbacks": [{"use": "lit_unsaved:Slower"}]}}),
        ("lit_repeated:Teaching", {"accumulate": 2}),
        ("lit_repeated:Accumulating", {}),
        ("user_modules:Classifier", {"validation": section(40), "validate_every": "epoch"}),
    ],
    ids=["attributes", "weights and batches, accumulated", "gradients that stay", "metrics and a validation"],
)
def test_a_run_is_the_same_with_it(module: str, keys: Any) -> None:
    for run_id, callbacks in [("plain", []), ("checked", CHECK)]:
        result = ran(run_id, module, callbacks=callbacks, **keys)
        assert result.status == "succeeded", result.error
    comparison = compare_bits(RunDirectory(Path("runs/plain")), RunDirectory(Path("runs/checked")))
    assert comparison.equal, comparison
    assert warnings("checked") == []


def test_a_bit_that_flips_is_found() -> None:
    from lit_repeated import FLIPS

    FLIPS[:] = [True]
    assert ran("flipped", "lit_repeated:Teaching", callbacks=CHECK).status == "succeeded"
    (warning,) = warnings("flipped")
    assert "step 6 was computed 3 times" in warning
    assert "gradient of module.prototypes.weight, rank 0" in warning


def test_noise_that_no_seed_decides_about_ends_the_run() -> None:
    error = ran("noisy", "lit_repeated:Noisy", callbacks=CHECK).error
    assert error.type == "SilentCorruption"
    assert "step 2 was computed 3 times from the same state, with 3 results" in error.message


def test_a_module_that_optimizes_by_hand_is_refused_before_its_first_step() -> None:
    with pytest.raises(Errors, match="a step of Adversarial cannot be made again: it optimizes by hand"):
        ran("by-hand", "user_modules:Adversarial", callbacks=CHECK)
    assert not Path("runs/by-hand").exists()
