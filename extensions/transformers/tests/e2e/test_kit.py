"""The conformance kit certifies the trainer."""

import json
from typing import Any

from transformers_workshop import LLAMA


def test_the_conformance_kit_certifies_it(workshop: Any) -> None:
    job = workshop.job(
        "kit",
        {"config": {**LLAMA, "attention_dropout": 0.1}},
        validation={"parquet_paths": ["train.parquet"], "batch_size": 8},
    )
    del job["run_id"]
    job |= {"validate_every": 4, "test": {"parquet_paths": ["train.parquet"], "batch_size": 8}}
    job["samples"], job["sample_every"] = [{"prompt": "the"}], 4
    (workshop.path / "kit.json").write_text(json.dumps(job))
    code, output = workshop.command("check", "transformers", "--kind", "trainer", "--job", "kit.json", "--certified")
    assert code == 0, output
