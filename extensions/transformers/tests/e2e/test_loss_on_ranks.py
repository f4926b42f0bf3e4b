"""Rows on two ranks, in batches of different sizes, are one batch."""

from pathlib import Path
from typing import Any

import pytest
from transformers_steps import MODELS, WHOLE, stepped, stepped_on_two_ranks

WAYS = {
    **MODELS,
    "llama-fsdp2": {**MODELS["llama"], "strategy": "fsdp2"},
    "bert-classes-fsdp2": {**MODELS["bert-classes"], "strategy": "fsdp2"},
}


def test_ranks_and_accumulated_batches_are_one_batch_for_each_task(workshop: Any, tmp_path: Path) -> None:
    tokenizer = workshop.path / "tokenizer"
    together = stepped_on_two_ranks(tmp_path, tokenizer, WAYS, [[[0, 1, 2], [6]], [[3], [4, 5, 7]]])
    for name, settings in WAYS.items():
        assert together[name] == pytest.approx(stepped(tokenizer, settings, WHOLE), rel=1e-4), name
