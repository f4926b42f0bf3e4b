"""Killed and resumed: the same losses, metrics and state, to the last bit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lit_jobs import HERE, by_command, job, section

from hostcore.checkpoints.state import read_state

#: Right before and behind an epoch's end, in its middle, and at the first step of an epoch.
KILLS = [f"kill@step={step}" for step in (6, 20, 21, 34, 42)]
EMA = {"use": "lightning.pytorch.callbacks:EMAWeightAveraging", "init": {"decay": 0.9}}


def told(run: Path) -> dict[tuple[str, int], dict[str, float]]:
    """All recorded metrics, by what they are of and the step; of steps that were made twice, both must be the same."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for line in (run / "logs/events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] in ("metrics", "validation", "test"):
            key = event["event"], event["step"]
            assert found.setdefault(key, event["metrics"]) == event["metrics"], key
    return found


def final_state(run: Path) -> str:
    """The state of the last checkpoint, as text."""
    state: Any = read_state(max(one for one in (run / "checkpoints").glob("step-*") if one.is_dir()), "state")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): plain(one) for key, one in value.items()}
        return (
            [plain(one) for one in value]
            if isinstance(value, (list, tuple))
            else repr(getattr(value, "tolist", lambda: value)())
        )

    return json.dumps(plain(state), sort_keys=True)


PAIR = {"devices": ["cpu", "cpu"], "device": None}
AVERAGE = {"hyperparams": {"callbacks": [EMA]}, "validate_every": 7, "test": section(40)}
OWN_SPLIT = {"hyperparams": {"datamodule": "user_modules:Split"}, "dataset": {**section(160, 8), "workers": 2}}
#: A row is a batch.
ALONE = {"dataset": {**section(19, 1), "shuffle": False}}
SAMPLER = {"hyperparams": {"datamodule": "user_modules:Weighted"}, "dataset": section(160, 8)}


@pytest.mark.parametrize(
    ("module", "keys"),
    [
        pytest.param("lit_killed:Kept", AVERAGE, id="average, metrics"),
        pytest.param("user_modules:ByHand", {}, id="accumulated by hand"),
        pytest.param("user_modules:Synced", PAIR, id="two ranks"),
        pytest.param("user_modules:Synced", {**OWN_SPLIT, **PAIR}, id="a split of its own, two ranks, workers"),
        pytest.param("lit_killed:Kept", SAMPLER, id="a sampler"),
        pytest.param(
            "user_modules:Hooked", {"hyperparams": {"datamodule": "user_modules:Noisy"}}, id="hooks, drawn rows"
        ),
        pytest.param(
            "lit_unsaved:Keeper",
            {"hyperparams": {"datamodule": "lit_unsaved:Data", "callbacks": [{"use": "lit_unsaved:Slower"}]}},
            id="state that no state_dict has",
        ),
        pytest.param("lit_killed:Kept", {**ALONE, "hyperparams": {"datamodule": "user_modules:Batched"}}, id="batches"),
        pytest.param(
            "lit_killed:Kept", {**ALONE, "hyperparams": {"datamodule": "user_modules:Iterated"}}, id="a stream"
        ),
        pytest.param(
            "lit_unsaved:Keeper",
            {"hyperparams": {"datamodule": "lit_unsaved:Data"}, "dataset": {**section(160, 8), "workers": 2}},
            id="generators of a dataset, workers",
        ),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, module: str, keys: dict[str, Any]) -> None:
    for name in ("user_modules.py", "lit_killed.py", "lit_unsaved.py"):
        shutil.copy(HERE / name, tmp_path)
    given = job(module, **keys)
    given["hyperparams"]["module"] = module
    if "shuffle" not in given["dataset"]:
        given["dataset"] |= {"shuffle": True, "batch_size": 8 // len(given.get("devices", ["cpu"]))}
    given |= {"checkpoint_every": 4}
    if "ByHand" not in module:
        given |= {"validation": section(40), "validate_every": keys.get("validate_every", "epoch")}
    (tmp_path / "job.json").write_text(json.dumps(given))

    def run(name: str, *faults: str) -> int:
        chaos = [f"--chaos={fault}" for fault in faults]
        code, said = by_command(tmp_path, "run", "job.json", "--set", f"run_id={name}", *chaos)
        (tmp_path / f"{name}.txt").write_text(said)
        return code

    assert run("whole") == 0, (tmp_path / "whole.txt").read_text()
    codes = [run("killed", *KILLS) for _ in (*KILLS, "")]
    assert codes == [1] * len(KILLS) + [0], (tmp_path / "killed.txt").read_text()
    assert told(tmp_path / "runs/killed") == told(tmp_path / "runs/whole")
    assert final_state(tmp_path / "runs/killed") == final_state(tmp_path / "runs/whole")
    code, said = by_command(tmp_path, "verify", "runs/killed")
    assert code == 0, said


def test_the_proof_of_an_iterable_counts_its_batches(tmp_path: Path) -> None:
    shutil.copy(HERE / "user_modules.py", tmp_path)
    given = job("Plain", hyperparams={"datamodule": "user_modules:Iterated"}, max_steps=30, epochs=None)
    del given["dataset"]
    (tmp_path / "job.json").write_text(json.dumps({**given, "checkpoint_every": 4}))
    codes = [by_command(tmp_path, "run", "job.json", "--chaos=kill@step=17", "--set", "run_id=it")[0] for _ in "ab"]
    assert codes == [1, 0]
    code, said = by_command(tmp_path, "verify", "runs/it")
    assert code == 0, said
    assert "30 batches of the iterable were trained on" in said
    assert "counted: that each is the same again is up to what gives them" in said


def test_a_killed_stream_goes_on_from_its_own_state(tmp_path: Path) -> None:
    for name in ("user_modules.py", "lit_streams.py"):
        shutil.copy(HERE / name, tmp_path)
    given = job("Plain", hyperparams={"datamodule": "lit_streams:Stateful"}, max_steps=170, epochs=None)
    del given["dataset"]
    (tmp_path / "job.json").write_text(json.dumps({**given, "checkpoint_every": 10}))

    def run(name: str, *faults: str) -> int:
        chaos = [f"--chaos={fault}" for fault in faults]
        return by_command(tmp_path, "run", "job.json", "--set", f"run_id={name}", *chaos)[0]

    assert run("whole") == 0
    assert run("killed", "kill@step=155") == 1
    (tmp_path / "read.txt").unlink()
    assert run("killed", "kill@step=155") == 0
    assert told(tmp_path / "runs/killed") == told(tmp_path / "runs/whole")
    assert len((tmp_path / "read.txt").read_text()) < 2 * (170 - 127) + 40  # of 400: from the state behind batch 128
    code, said = by_command(tmp_path, "verify", "runs/killed")
    assert code == 0, said
    assert "batches of the iterable dataset, which has a state_dict" in said
