"""Attributes that change in training, and that no ``state_dict`` has. ``e2e/test_resume.py`` resumes from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from lit_jobs import job

import hostcore_lightning.trainer  # noqa: F401 - before the first run, which would count it
from hostcore.checkpoints.state import read_state
from hostcore.in_process import run

NAMED = "changes in training and is in no checkpoint"


def ran(module: str, **hyperparams: Any) -> tuple[dict[str, Any], list[str]]:
    """The attributes in the last checkpoint of a run, and its warnings about others."""
    given = job("Plain", hyperparams={"module": module, **hyperparams}, epochs=1)
    assert run(given).status == "succeeded"
    state: Any = read_state(Path("runs/fit/checkpoints/step-000020"), "state")
    events = map(json.loads, Path("runs/fit/logs/events.jsonl").read_text().splitlines())
    warnings = [one["message"] for one in events if one["event"] == "warning" and NAMED in one["message"]]
    return state["hostcore"]["ranks"][0]["unsaved"], warnings


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("module", ["Plain", "Adversarial", "ByHand", "Certified", "Synced"])
def test_of_a_module_whose_state_dict_has_everything_nothing_is_added(module: str) -> None:
    assert ran(f"user_modules:{module}") == ({}, [])


def test_an_attribute_that_cannot_be_stored_is_named_once() -> None:
    captured, warnings = ran("lit_unsaved:Opaque")
    assert captured == {"module.count": 20}
    hint = "add it to on_save_checkpoint and restore it in on_load_checkpoint (lightning (hostcore-lightning 0.1.0))"
    assert warnings == [
        f"module.{name} {NAMED} ({why}), so a resumed run may train differently: {hint}"
        for name, why in [
            ("last", "it holds a builtins.object"),
            ("history", "it has 100,001 elements"),
            ("labelled", "it holds a lit_unsaved.Labelled of layout torch.strided"),
            ("sparse", "it holds a torch.Tensor of layout torch.sparse_coo"),
            ("objects", "it holds a numpy.ndarray"),
        ]
    ]


def test_with_capture_off_attributes_are_named_and_not_stored() -> None:
    captured, warnings = ran("lit_unsaved:Keeper", capture="off")
    assert captured == {}
    named = {one.split()[0] for one in warnings}
    assert named == {
        *("module.steps", "module.hidden", "module.recent", "module.bank", "module.schedules['weight'].calls"),
        *("module.teacher", "module.rng", "module.draws", "module.seen", "module.losses"),
    }


@pytest.mark.parametrize(
    ("bytes_of_a_row", "stored"),
    [(4, {"datamodule.cache", "datamodule.count"}), (1 << 20, {"datamodule.count"})],
)
def test_a_cache_of_rows_makes_no_checkpoint_large(bytes_of_a_row: int, stored: set[str]) -> None:
    init = {"bytes_of_a_row": bytes_of_a_row}
    captured, warnings = ran("user_modules:Plain", datamodule="lit_unsaved:Caching", datamodule_init=init)
    assert (captured.keys(), warnings) == (stored, [])
