"""How a fit ends, goes on and goes back, in this process."""

import json
from pathlib import Path
from typing import Any

import lit_killed
import pytest
import torch
from lit_jobs import job, section
from lit_watch import WATCHED, Checked, Watch

from hostcore.checkpoints.state import read_state
from hostcore.in_process import run as run_here
from hostcore_hookspecs import HostcoreError

VALIDATION = {"validation": section(40), "validate_every": "epoch"}
STOPPING = {
    "use": "lightning.pytorch.callbacks:EarlyStopping",
    "init": {"monitor": "val_loss", "patience": 1, "min_delta": 10.0},
}
EMA = {"use": "lightning.pytorch.callbacks:EMAWeightAveraging", "init": {"decay": 0.9}}
WATCH = {"use": "lit_watch:Watch"}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(module: str, *callbacks: dict[str, Any], **keys: Any) -> Any:
    """The result of an attempt; a run of the same name goes on."""
    hyperparams = keys.pop("hyperparams", {})
    given = job("", **keys)
    given["hyperparams"] |= {"module": module, "callbacks": [*callbacks, WATCH], **hyperparams}
    return run_here(given)


def events(kind: str, name: str = "fit") -> list[dict[str, Any]]:
    lines = Path("runs", name, "logs/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def last_checkpoint(name: str = "fit") -> Path:
    return max(one for one in Path("runs", name, "checkpoints").glob("step-*") if one.is_dir())


def test_a_backbone_that_was_unfrozen_goes_on_bit_for_bit_and_callbacks_are_told_of_an_error() -> None:
    tuning = {"use": "lightning.pytorch.callbacks:BackboneFinetuning", "init": {"unfreeze_backbone_at_epoch": 1}}
    callbacks, found = (tuning, {"use": "lit_killed:Told"}), list[Watch]()
    lit_killed.Told.errors.clear()
    for name, fails in (("whole", set()), ("failing", {33, 47})):
        lit_killed.Fails.steps |= fails
        for _ in fails:
            assert run("lit_killed:FailsTuned", *callbacks, run_id=name, checkpoint_every=6).status == "failed"
        result = run("lit_killed:FailsTuned", *callbacks, run_id=name, checkpoint_every=6)
        assert result.status == "succeeded", result.error
        found.append(WATCHED[-1])
    for key, value in found[0].weights.items():
        assert torch.equal(value, found[1].weights[key]), key
    assert found[1].rates == found[0].rates[-len(found[1].rates) :]
    assert lit_killed.Told.errors == ["failed at 33", "failed at 47"]


def test_the_fit_ends_before_the_last_checkpoint_of_a_run_that_a_callback_ends() -> None:
    """The averaged weights are in the checkpoint, in what is exported, and in what is tested."""
    result = run(
        "user_modules:Classifier",
        EMA,
        STOPPING,
        **VALIDATION,
        epochs=6,
        test=section(40),
        hyperparams={"export_ckpt": True},
    )
    assert result.status == "succeeded", result.error
    averaged, folder = WATCHED[-1].weights, last_checkpoint()
    exported = torch.load(folder / "trainer/model.ckpt", weights_only=True)["state_dict"]
    for name, value in averaged.items():
        assert torch.equal(exported[name], value), name
    stored: Any = read_state(folder, "state")
    assert torch.equal(stored["current_model_state"]["net.0.weight"], averaged["net.0.weight"])
    (test,) = events("test")
    import user_modules

    model = user_modules.Classifier()
    model.load_state_dict(averaged)
    data = user_modules.Data()
    data.setup("test")
    x, y = data.held_out.tensors
    assert test["metrics"]["test/loss"] == pytest.approx(
        float(torch.nn.functional.cross_entropy(model.eval()(x), y)), rel=1e-5
    )


def test_a_run_that_a_callback_ended_is_not_trained_further_after_an_interrupted_test() -> None:
    lit_killed.FailsTest.times.append(1)
    keys = {**VALIDATION, "epochs": 6, "test": section(40)}
    assert run("lit_killed:FailsTest", EMA, STOPPING, **keys).status == "preempted"
    averaged = WATCHED[-1].weights
    result = run("lit_killed:FailsTest", EMA, STOPPING, **keys)
    assert result.status == "succeeded", result.error
    assert result.step == 40
    stored: Any = read_state(last_checkpoint(), "state")
    assert torch.equal(stored["current_model_state"]["net.0.weight"], averaged["net.0.weight"])
    assert len(events("test")) == 1


def test_metrics_of_an_epoch_are_recorded_whatever_the_cadence_and_no_two_of_one_name() -> None:
    result = run("user_modules:LogsEpochs", metric_every=7, epochs=2)
    assert result.status == "succeeded", result.error
    of_epochs = {"train/loss_epoch", "train/twice"}
    found = {event["step"]: set(event["metrics"]) for event in events("metrics")}
    assert {step for step, names in found.items() if of_epochs <= names} == {20, 40}
    assert {step for step, names in found.items() if "train/half" in names} == {7, 14, 21, 28, 35, 40}
    assert all("train/loss" in names for names in found.values())
    assert run("user_modules:LogsEpochs", run_id="none", metric_every=0, epochs=1).status == "succeeded"
    assert not events("metrics", "none")
    with pytest.raises(HostcoreError, match="'train_loss' and 'loss', and both are recorded as 'train/loss'"):
        run("user_modules:NamesOneTwice", run_id="twice", epochs=1)


def test_going_back_leaves_the_place_of_the_run() -> None:
    keys = {"checkpoint_every": 16, "keep_checkpoints": 9, **VALIDATION}
    result = run("user_modules:Classifier", **keys, callbacks=["lit_killed:Back"])
    assert result.status == "succeeded", result.error
    assert [event["restored_step"] for event in events("trainer_restored")] == [16]
    found = WATCHED[-1]
    assert found.place == (3, 60)
    assert len(found.losses) == 60
    assert len(found.validated) == 1 + 3  # the first is the check before the training
    whole = run("user_modules:Classifier", **keys, run_id="whole")
    assert whole.status == "succeeded", whole.error
    assert WATCHED[-1].losses[:33] == found.losses[:33]
    assert WATCHED[-1].losses[33] != found.losses[33]


def test_schedulers_and_patience_see_a_validation_that_was_interrupted_in_the_next_attempt() -> None:
    """In the middle, and after the last step."""
    stopping = {"use": STOPPING["use"], "init": {"monitor": "val_loss", "patience": 9}}
    assert run("lit_killed:Interrupted", stopping, **VALIDATION, run_id="whole").status == "succeeded"
    whole = WATCHED[-1]
    undisturbed: Any = read_state(last_checkpoint("whole"), "state")
    (patience,) = [name for name in undisturbed["callbacks"] if "EarlyStopping" in name]
    for epoch, name in ((1, "middle"), (2, "last")):
        lit_killed.Interrupted.epochs.add(epoch)
        for status in ("preempted", "succeeded"):
            result = run("lit_killed:Interrupted", stopping, **VALIDATION, run_id=name)
            assert result.status == status, result.error
        told, expected = events("validation", name), events("validation", "whole")
        assert [(one["step"], one["metrics"]) for one in told] == [(one["step"], one["metrics"]) for one in expected]
        stored: Any = read_state(last_checkpoint(name), "state")
        assert stored["lr_schedulers"] == undisturbed["lr_schedulers"]
        assert stored["callbacks"][patience] == undisturbed["callbacks"][patience]
        assert WATCHED[-1].place == whole.place == (3, 60)
        for parameter, value in whole.weights.items():
            assert torch.equal(WATCHED[-1].weights[parameter], value), parameter


def test_the_first_validation_batches_are_checked_as_lightning_does_it_but_not_in_a_fit_that_has_begun() -> None:
    Checked.seen.clear()
    run("user_modules:Classifier", {"use": "lit_watch:Checked"}, epochs=1, **VALIDATION)
    checks = [("start", True, False), ("batch 0", True, False), ("batch 1", True, False), ("end", True, False)]
    trained = [("train", False, False), *[(f"batch {index}", False, True) for index in range(3)]]
    assert Checked.seen == [*checks, *trained]
    Checked.seen.clear()
    late = {"use": "lit_watch:CheckedLate"}
    assert run("user_modules:Classifier", late, epochs=1, **VALIDATION, run_id="late").status == "succeeded"
    assert [name for name, *_ in Checked.seen] == ["fit", "train", "batch 0", "batch 1", "batch 2"]
    # So a monitor that is not logged is an invalid job, or else a failure.
    keys = {"epochs": 1, **VALIDATION, "callbacks": [{"use": "best-checkpoint", "monitor": "val_loss"}]}
    failed = run("user_modules:Classifier", late, **keys, run_id="later")
    assert (failed.status, failed.error.hint) == ("failed", "did you mean 'val/loss'?")
    with pytest.raises(HostcoreError) as caught:
        run("user_modules:Classifier", **keys, run_id="invalid")
    (error,) = caught.value.errors
    assert (error.pointer, error.hint) == ("/callbacks/0/monitor", "did you mean 'val/loss'?")


def test_early_stopping_looks_when_there_is_a_validation() -> None:
    """Here at steps 7 and 14, and not at the epoch's end, 20."""
    result = run("user_modules:Classifier", STOPPING, validation=section(40), validate_every=7)
    assert result.status == "succeeded", result.error
    assert result.step == 14


def test_hooks_of_a_test() -> None:
    from user_modules import Hooked

    Hooked.calls.clear()
    result = run("user_modules:Hooked", **VALIDATION, epochs=1, test=section(16))
    assert result.status == "succeeded", result.error
    after = Hooked.calls[Hooked.calls.index("on_train_end") :]
    assert [one for one in after if "batch" not in one.replace("test_batch", "")] == [
        "on_train_end",
        "setup",
        "on_test_model_eval",
        "on_test_start",
        "on_test_epoch_start",
        "on_test_batch_start",
        "on_test_batch_end",
        "on_test_epoch_end",
        "on_test_end",
        "on_test_model_train",
        "on_fit_end",
        "teardown",
        "teardown",
    ]
