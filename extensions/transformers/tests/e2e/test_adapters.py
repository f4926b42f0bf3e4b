"""Adapters that are trained further, and merged with their model."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers_workshop import BERT, GPT2, LLAMA, MIXTRAL, killed_and_started_again, same_weights

#: The head of the classifier is new; the output's weights are no longer those of the embeddings.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "text": (LLAMA, {"lora": {"target_modules": "all-linear", "modules_to_save": ["lm_head"]}}, "AutoModelForCausalLM"),
    "classes": (
        BERT,
        {"task": "sequence-classification", "classes": ["a", "b", "c"], "lora": {"target_modules": ["query"]}},
        "AutoModelForSequenceClassification",
    ),
    "tokens": (
        LLAMA,
        {
            "messages_column": "messages",
            "chat_template": "chatml",
            "special_tokens": ["<|im_start|>", "<|im_end|>"],
            "lora": {"target_modules": "all-linear"},
        },
        "AutoModelForCausalLM",
    ),
    "experts": (MIXTRAL, {"lora": {"target_modules": ["q_proj"]}}, "AutoModelForCausalLM"),
}


def trained(workshop: Any, way: str) -> Path:
    """Adapters of six steps."""
    config, settings, _ = WAYS[way]
    folder = workshop.path / "runs" / f"adapters-{way}/checkpoints/step-000006/trainer"
    if not folder.exists():
        model = workshop.model(f"base-{way}", config)
        workshop.done(f"adapters-{way}", {"model": model, "learning_rate": 0.01, **settings})
    return folder


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=torch.arange(3, 30)[None]).logits
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_merged_model_computes_what_the_model_with_its_adapters_does(workshop: Any, tmp_path: Path, way: str) -> None:
    import peft
    import transformers

    adapter, kind = trained(workshop, way), getattr(transformers, WAYS[way][2])
    code, output = workshop.command("export", f"adapters-{way}", str(tmp_path / "merged"), "--merge")
    assert code == 0, output
    assert "adapter" not in {one.name.partition("_")[0] for one in (tmp_path / "merged").iterdir()}
    merged = kind.from_pretrained(tmp_path / "merged")
    labels = {} if way != "classes" else {"num_labels": 3, "id2label": {0: "a", 1: "b", 2: "c"}}
    base = kind.from_pretrained(workshop.path / f"base-{way}", **labels)
    if labels:
        assert merged.config.id2label == labels["id2label"]
    if way == "tokens":
        base.resize_token_embeddings(322)
    plain = logits_of(base).clone()
    expected = logits_of(peft.PeftModel.from_pretrained(base, adapter))
    assert torch.allclose(logits_of(merged), expected, atol=1e-5)
    assert not torch.allclose(plain, expected, atol=1e-3)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "merged").eos_token == "</s>"


def test_a_model_that_was_moved_is_named_and_another_one_is_refused(workshop: Any, tmp_path: Path) -> None:
    trained(workshop, "text")
    deeper = workshop.model("deeper", {**LLAMA, "num_hidden_layers": 3})
    merge = ("export", "adapters-text", str(tmp_path / "merged"), "--merge", "--dtype", "bf16", "--base")
    for other in (workshop.model("gpt2", GPT2), deeper, "nowhere"):
        code, output = workshop.command(*merge, other)
        assert code == 2
        assert ("has another model than that which" if other != "nowhere" else "is not in nowhere") in output
        assert not list(tmp_path.iterdir())
    shutil.copytree(workshop.path / "base-text", workshop.path / "moved")
    assert workshop.command(*merge, "moved")[0] == 0
    weights = load_file(tmp_path / "merged/model.safetensors")
    assert {one.dtype for one in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_from_adapters_and_after_a_kill_bit_for_bit(workshop: Any, way: str) -> None:
    adapter = trained(workshop, way)
    settings = {name: value for name, value in WAYS[way][1].items() if name != "lora"}
    settings |= {"model": f"base-{way}", "adapter": str(adapter), "learning_rate": 0.01}
    keys = {"max_steps": 8, "checkpoint_every": 4, "keep_checkpoints": 9}
    whole = workshop.done(f"further-{way}", settings, **keys)
    first = workshop.done(f"first-{way}", {**settings, "learning_rate": 1e-12}, max_steps=1)
    before, after = (load_file(one / "adapter_model.safetensors") for one in (adapter, first.trained(1)))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-9) for name in before), "they are where it begins"
    again = killed_and_started_again(workshop, f"further-killed-{way}", settings, **keys)
    assert again.metrics() == whole.metrics()
    assert same_weights(again.trained(8), whole.trained(8))
