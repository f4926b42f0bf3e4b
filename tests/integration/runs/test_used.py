"""Which runs used what: real runs with a trainer of two versions, and the list of them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from command_line import Said, said_by
from fork_server import hostcore

TRAINER = """
    import torch
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self, ctx): pass
        def configure(self, ctx): return {}
        def prepare_batch(self, raw_batch, state, ctx): return raw_batch
        def train_step(self, prepared_batch, state, ctx): return StepResult(metrics={"loss": 1.0})
        def state_dict(self, state): return state
        def load_state_dict(self, state, payload, ctx): pass
    """


def test_a_run_is_found_by_the_versions_of_all_its_attempts_and_by_its_data(site: Any, tmp_path: Path) -> None:
    entry_points = {"hostcore.trainers": {"mine": "my_trainer:Trainer"}}
    old = site.install("My-Trainer", version="0.1.0", modules={"my_trainer.py": TRAINER}, entry_points=entry_points)
    pq.write_table(pa.table({"x": list(range(40))}), tmp_path / "data.parquet")
    data = {"parquet_paths": ["data.parquet"], "batch_size": 4}
    job = {"run_id": "a", "trainer": "mine", "device": "cpu", "terminal": False, "dataset": data, "max_steps": 2}
    (tmp_path / "job.json").write_text(json.dumps(job))

    def command(*arguments: str) -> Said:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        said = said_by(hostcore(arguments, cwd=tmp_path, env=site.environment, **piped))
        assert said.code == 0, said.err
        return said

    command("run", "job.json")
    shutil.rmtree(old)
    site.install("My-Trainer", version="0.2.0", modules={"my_trainer.py": TRAINER}, entry_points=entry_points)
    command("resume", "a", "--set", "max_steps=4")

    fingerprint = command("status", "a", "--json").json["data"]
    assert f"\n  data        {fingerprint[:12]}\n" in command("status", "a").out
    for asked in (["--plugin", "mine==0.1"], ["--distribution", "my-trainer<0.2"]):
        (found,) = command("list", *asked, "--data", fingerprint[:8], "--json").json["runs"]
        (used,) = found["used"]
        assert (used["attempt"], used["plugins"][0]["version"], used["data"]) == (1, "0.1.0", fingerprint)
    found = command("list", "--plugin", "mine", "--plugin", "parquet", "--json").json
    versions = [used["plugins"][0]["version"] for used in found["runs"][0]["used"]]
    assert (versions, found["unknown"]) == (["0.1.0", "0.2.0"], 0)
