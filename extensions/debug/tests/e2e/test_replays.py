"""Many steps of many kinds of runs again; the row that makes a spike; a debugger at a terminal."""

import json
import os
import pty
import random
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from fork_server import hostcore
from pexpect.fdpexpect import fdspawn
from ports import free_ports

LLAMA = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "attention_dropout": 0.1,
}


def test_fifty_steps_of_two_ranks_are_the_recorded_ones(bench: Any) -> None:
    bench.data("long.parquet", 2_000)
    dataset = {"parquet_paths": ["long.parquet"], "batch_size": 4, "shuffle": True, "columns": ["a", "b", "y"]}
    bench.run("ranks", dataset=dataset, devices=["cpu", "cpu"], accumulate=2, max_steps=300, keep_checkpoints=30)
    chosen = random.Random(7).sample(range(1, 296), 10)
    for step in chosen:
        found = bench.json("debug", "ranks", "--step", str(step), "--until", str(step + 4))
        assert found["replayed"]["equal"], found["replayed"]
        assert found["replayed"]["steps"] == found["replayed"]["compared"] == step + 4 - found["replayed"]["from"]
    rows = [bench.json("rows", "ranks", "--step", "9", "--rank", str(rank))["rows"] for rank in (0, 1)]
    assert [len(one) for one in rows] == [8, 8]
    everything = bench.json("rows", "ranks", "--step", "9")["rows"]
    assert sorted(map(str, [*rows[0], *rows[1]])) == sorted(map(str, everything))


def test_an_unchanged_lightning_module_is_replayed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "extensions/lightning/tests"))
    hyperparams = {"module": "user_modules:Plain", "datamodule": "user_modules:Data"}
    keys = {"trainer": "lightning", "hyperparams": hyperparams, "dataset": None, "device": "cpu"}  # its own data
    bench.run("lightning", **keys, max_steps=30)
    assert [one["file"] for one in bench.json("rows", "lightning", "--step", "27")["rows"]] == ["indices"] * 8
    found = bench.json("debug", "lightning", "--step", "27")
    assert (found["replayed"]["from"], found["replayed"]["equal"]) == (20, True)
    assert found["gradients"]
    # The optimizer computes them itself, by a closure: those of the step before are still there when it begins.
    first, second = (bench.json("debug", "lightning", "--step", step)["gradients"] for step in ("21", "22"))
    assert first != second


def test_a_job_is_replayed_in_an_environment_of_its_own_that_lacks_this_package(bench: Any, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (folder,) = place.glob("lib/*/site-packages")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "hostcore_debug" not in one.name:
            (folder / one.name).symlink_to(one)
    bench.run("apart", environment={"interpreter": str(place / "bin/python")}, max_steps=12)
    assert bench.json("debug", "apart", "--step", "9")["replayed"]["equal"]


def test_ranks_that_an_engine_has_started_are_replayed(bench: Any) -> None:
    bench.run("by-hand", max_steps=2)  # writes the job file
    job = json.loads((bench.folder / "by-hand.json").read_text()) | {"run_id": "launched", "max_steps": 30}
    (bench.folder / "launched.json").write_text(json.dumps(job))
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "hostcore", "run", "launched.json"]
    around = {**os.environ, "MASTER_PORT": str(free_ports(1))}
    subprocess.run([sys.executable, *words], cwd=bench.folder, env=around, check=True, capture_output=True)
    found = bench.json("debug", "launched", "--step", "25")
    assert len(found["rows"]) == 32
    assert found["replayed"]["equal"]


def test_replays_of_two_runs_find_the_first_step_that_differs_between_their_recorded_ones(bench: Any) -> None:
    for name, bent_at in [("straight", 0), ("bent", 16)]:
        bench.run(name, metric_every=10, hyperparams={"bent_at": bent_at}, max_steps=30)
    found = bench.json("compare", "straight", "bent", "--bits", code=1)
    assert (found["last_equal_checkpoint"], found["first_different_step"]) == (10, 20)
    shown = bench(["compare", "straight", "bent", "--bits"]).stdout
    assert "hostcore debug straight --step 11 --until 20 --save" in shown
    for name in ("straight", "bent"):
        bench.json("debug", name, "--step", "11", "--until", "20", "--save", f"{name}-again")
    again = ["straight-again/replay-straight", "bent-again/replay-bent"]
    found = bench.json("compare", *again, "--bits", code=1)
    assert (found["first_different_step"], found["details"]) == (16, ["/hyperparams/bent_at"])


def test_a_llama_is_replayed(bench: Any) -> None:
    pytest.importorskip("transformers")
    from transformers_workshop import save_tokenizer

    save_tokenizer(bench.folder / "tokenizer", pad_token="<pad>", eos_token="</s>")
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(
        pa.table({"text": [f"text number {n} of many" for n in range(64)]}), bench.folder / "text.parquet"
    )
    keys = {
        "trainer": "transformers",
        "hyperparams": {"config": LLAMA, "tokenizer": "tokenizer", "max_length": 16},
        "dataset": {"parquet_paths": ["text.parquet"], "batch_size": 4, "shuffle": True},
    }
    bench.run("llama", **keys, max_steps=24)
    bench.run("llama-checked", **keys, max_steps=24, callbacks=[{"use": "replay-check", "every": 3}])
    assert bench.json("compare", "llama", "llama-checked", "--bits")["equal"]
    found = bench.json("debug", "llama", "--step", "24")
    assert (found["replayed"]["from"], found["replayed"]["equal"]) == (20, True)
    assert any("q_proj" in name for name in found["gradients"])


def test_a_poisoned_row_among_200_000_is_named(bench: Any) -> None:
    bench.data("poisoned.parquet", 200_000, poisoned=123_456)
    dataset = {"parquet_paths": ["poisoned.parquet"], "batch_size": 256, "shuffle": True, "columns": ["a", "b", "y"]}
    bench.run("poisoned", dataset=dataset, max_steps=781, checkpoint_every=100)
    (spike,) = bench.json("debug", "poisoned", "--spikes")["spikes"]
    assert 123_456 in [one["row"] for one in spike["rows"]]
    found = bench.json("debug", "poisoned", "--step", str(spike["step"]), "--bisect-rows")
    assert [one["row"] for one in found["rows"]] == [123_456]


@pytest.mark.parametrize("leaves", [False, True])
def test_pdb_stops_before_the_step_at_this_terminal(bench: Any, plain: Path, *, leaves: bool) -> None:
    assert plain.is_dir()
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "r+b", buffering=0) as its_side:
        streams = {"stdin": its_side, "stdout": its_side, "stderr": its_side}
        process = hostcore(
            ["debug", "plain", "--step", "35", "--pdb"], cwd=bench.folder, start_new_session=True, **streams
        )
        its_side.close()
        shown = fdspawn(terminal.fileno(), timeout=60, encoding="utf-8")
        shown.expect(r"\(Pdb\)")
        os.write(terminal.fileno(), b"p ctx.run_state.step, sorted(prepared_batch)\n")
        shown.expect(r"\(34, \['a', 'b', 'y'\]\)")
        os.write(terminal.fileno(), b"q\n" if leaves else b"c\n")
        if leaves:
            shown.expect("the debugger was left before the step was over")
            assert "Traceback" not in shown.before
            assert process.wait(60) == 1
            return
        shown.expect("equal to the recorded ones, bit for bit")
        shown.expect_exact("hostcore rows plain --step 35")
        assert process.wait(60) == 0
