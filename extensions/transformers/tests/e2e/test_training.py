"""Tasks, adapters, packing, several ranks; and that a run which was killed is the run which was not."""

import math
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers_workshop import BERT, LLAMA, MIXTRAL, killed_and_started_again, same_weights

SHUFFLED = {"dataset": {"parquet_paths": ["train.parquet"], "batch_size": 4, "shuffle": True, "workers": 2}}

DROPPING = {**LLAMA, "attention_dropout": 0.1}

T5 = {
    "model_type": "t5", "vocab_size": 320, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "dropout_rate": 0.1, "decoder_start_token_id": 0,
}  # fmt: skip
WAYS = {
    "packed": {"config": DROPPING, "packing": True},
    "packed-texts": {"config": DROPPING, "packing": "texts", "messages_column": "messages", "learn_from": "answers"},
    "chat": {"messages_column": "messages", "gradient_checkpointing": True},
    "compiled": {"config": DROPPING, "torch_compile": True},
    "template": {
        "messages_column": "json",
        "learn_from": "answers",
        "chat_template": "chatml",
        "special_tokens": ["<|im_start|>", "<|im_end|>"],
        "max_length": 64,
    },
    "answers": {"messages_column": "json", "learn_from": "answers"},
    "masked": {"task": "masked-lm", "config": BERT},
    "written": {"task": "seq2seq", "target_column": "json", "config": T5},
    "classes": {"task": "sequence-classification", "config": BERT, "num_labels": 3},
    "lora-all": {
        "model": "llama",
        "lora": {"rank": 4, "dropout": 0.1, "target_modules": "all-linear", "modules_to_save": ["lm_head"]},
        "schedule": "warmup_stable_decay",
        "schedule_options": {"num_decay_steps": 4},
    },
    "frozen": {"frozen": ["embed_tokens"], "warmup_ratio": 0.3},
    "fp16": {"packing": "texts"},
    "adafactor": {"optimizer": "adafactor", "schedule": "constant_with_warmup", "warmup_steps": 5},
    "momentum": {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9, "nesterov": True}},
    "8-bit": {"optimizer": "adamw_8bit", "weight_decay": 0.1},
    "experts": {"config": {**MIXTRAL, "attention_dropout": 0.1}},
    "lora": {"model": "llama", "lora": {"rank": 4, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}},
}


RANKED = {
    "packed-ranks": WAYS["packed"],
    "rmsprop-fsdp2-ranks": {"optimizer": "rmsprop", "strategy": "fsdp2"},
    "lora-ddp-ranks": WAYS["lora"],
    "experts-fsdp2-ranks": {**WAYS["experts"], "strategy": "fsdp2"},
    "lora-fsdp2-ranks": {**WAYS["lora"], "strategy": "fsdp2"},
}


@pytest.mark.parametrize("way", [*WAYS, *RANKED])
def test_a_run_that_was_killed_goes_on_bit_for_bit(workshop: Any, way: str) -> None:
    workshop.model("llama", LLAMA)
    keys = {**SHUFFLED, "max_steps": 12, "checkpoint_every": 4, "keep_checkpoints": 9}
    if way in RANKED:
        data = {"parquet_paths": ["train.parquet"], "batch_size": 3, "shuffle": True}
        keys |= {"devices": ["cpu", "cpu"], "dataset": data, "max_steps": 8}
    if way == "fp16":
        keys["precision"] = "fp16"
    whole = workshop.done(f"{way}-whole", {**WAYS, **RANKED}[way], **keys)
    again = killed_and_started_again(workshop, f"{way}-killed", {**WAYS, **RANKED}[way], **keys)
    assert again.metrics() == whole.metrics()
    assert same_weights(again.trained(keys["max_steps"]), whole.trained(keys["max_steps"]))
    assert workshop.command("verify", f"{way}-killed")[0] == 0


def test_from_pretrained_reads_a_checkpoint_and_computes_what_the_run_computed(workshop: Any) -> None:
    import transformers

    validation = {"parquet_paths": ["train.parquet"], "batch_size": 96}
    keys = {"validation": validation, "validate_every": "epoch", "epochs": 1, "max_steps": 0}
    done = workshop.done("pretrained", {"config": LLAMA}, **keys)
    folder = done.trained(24)
    assert {path.name for path in folder.iterdir()} >= {"config.json", "generation_config.json", "tokenizer.json"}
    stored = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in stored  # tied
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(model.lm_head.weight, stored["model.embed_tokens.weight"])
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id  # where a sample ends
    texts = pq.read_table(workshop.path / "train.parquet").column("text").to_pylist()
    batch = tokenizer.pad(
        {"input_ids": [[*tokenizer(one)["input_ids"], tokenizer.eos_token_id][:32] for one in texts]},
        return_tensors="pt",
    )
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    with torch.no_grad():
        loss = model(**batch, labels=labels).loss.item()
    (validation,) = done.validations()
    assert validation["val/loss"] == pytest.approx(loss, rel=1e-6)
    assert validation["val/perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)


@pytest.mark.parametrize("strategy", ["one", "fsdp2"])
def test_from_pretrained_reads_experts_as_the_file_of_the_architecture_has_them(workshop: Any, strategy: str) -> None:
    import transformers

    workshop.model("mixtral", MIXTRAL)
    keys: dict[str, Any] = {"max_steps": 2}
    hyperparams: dict[str, Any] = {"model": "mixtral"}
    if strategy == "fsdp2":
        keys["devices"], hyperparams["strategy"] = ["cpu", "cpu"], "fsdp2"
    folder = workshop.done(f"experts-read-{strategy}", hyperparams, **keys).trained(2)
    first = workshop.path / "mixtral/model.safetensors"
    assert load_file(folder / "model.safetensors").keys() == load_file(first).keys()
    model, found = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    model.save_pretrained(workshop.path / f"again-{strategy}")
    assert same_weights(workshop.path / f"again-{strategy}", folder)
    assert not same_weights(folder, first.parent)


def test_tokens_and_a_template_are_stored_with_the_model(workshop: Any) -> None:
    import transformers

    done = workshop.done("tokens", {"model": workshop.model("llama", LLAMA), **WAYS["template"]}, max_steps=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(done.trained(2))
    model, found = transformers.AutoModelForCausalLM.from_pretrained(done.trained(2), output_loading_info=True)
    assert not any(found.values())
    assert len(tokenizer) == model.config.vocab_size == model.get_input_embeddings().num_embeddings == 322
    said = [{"role": "user", "content": "the mill"}]
    written = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert written == "<|im_start|>user\nthe mill<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.tokenize(written).count("<|im_start|>") == 2


def test_adapters_alone_are_stored_and_peft_reads_them(workshop: Any) -> None:
    import peft
    import transformers

    folder = workshop.model("llama", LLAMA)
    done = workshop.done("adapters", {**WAYS["lora"], "learning_rate": 0.01})
    assert {path.name for path in done.trained(6).glob("*.safetensors")} == {"adapter_model.safetensors"}
    base = transformers.AutoModelForCausalLM.from_pretrained(workshop.path / folder)
    before = {name: one.clone() for name, one in base.state_dict().items()}
    model = peft.PeftModel.from_pretrained(base, done.trained(6))
    assert sum("lora" in name for name in model.state_dict()) == 8
    merged = model.merge_and_unload().state_dict()
    changed = {name for name in before if not torch.equal(before[name], merged[name])}
    assert changed == {
        f"model.layers.{layer}.self_attn.{name}.weight" for layer in (0, 1) for name in ("q_proj", "v_proj")
    }


def test_a_step_without_a_whole_block_changes_nothing_but_the_remainder(workshop: Any) -> None:
    keys = {"dataset": {"parquet_paths": ["train.parquet"], "batch_size": 1}, "max_steps": 12}
    every = {"checkpoint_every": 1, "keep_checkpoints": 99}
    done = workshop.done("no-block", {"packing": True, "max_length": 24, "weight_decay": 0.1}, **keys, **every)
    losses = done.metrics()
    assert 0 < sum(loss == 0.0 for loss in losses.values()) < 12
    for step in range(2, 13):
        assert same_weights(done.trained(step - 1), done.trained(step)) == (losses[step] == 0.0), step


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_train_as_one_and_go_on_bit_for_bit(workshop: Any, strategy: str) -> None:
    folder = workshop.model("llama", LLAMA)
    hyperparams = {"model": folder, "strategy": strategy}
    keys = {"max_steps": 8, "checkpoint_every": 4, "keep_checkpoints": 9}
    alone = workshop.done(f"{strategy}-one", {"model": folder}, **keys)
    data = {"parquet_paths": ["train.parquet"], "batch_size": 2}
    samples = {"samples": [{"prompt": "the mill"}], "sample_every": 8}
    pair = {"devices": ["cpu", "cpu"], "dataset": data, **samples}
    two = workshop.done(f"{strategy}-two", hyperparams, **keys, **pair)
    assert two.metrics() == pytest.approx(alone.metrics(), rel=1e-4)
    weights, other = load_file(two.trained(8) / "model.safetensors"), load_file(alone.trained(8) / "model.safetensors")
    assert weights.keys() == other.keys()
    assert all(torch.allclose(weights[name], other[name], rtol=1e-3, atol=1e-4) for name in weights)

    again = killed_and_started_again(workshop, f"{strategy}-killed", hyperparams, **keys, **pair)
    assert again.metrics() == two.metrics()
    assert same_weights(again.trained(8), two.trained(8))


def test_a_sample_is_the_same_each_time_and_leaves_the_run_as_it_is(workshop: Any) -> None:
    keys = {"max_steps": 6, "samples": [{"prompt": "the mill", "seed": 3}], "sample_every": 3}
    with_samples = workshop.done("sampled", {"config": DROPPING}, **keys)
    again = workshop.done("sampled-again", {"config": DROPPING}, **keys)
    without = workshop.done("not-sampled", {"config": DROPPING}, max_steps=6)
    assert with_samples.metrics() == without.metrics()
    written = [sorted(run.path.glob("samples/*/0/sample.txt")) for run in (with_samples, again)]
    texts = [[path.read_text() for path in files] for files in written]
    assert len(texts[0]) == 2
    assert texts[0] == texts[1]
    assert all(text.startswith("the mill") for text in texts[0])


def test_fp16_scales_the_loss_and_leaves_a_step_out_whose_gradients_overflow(workshop: Any) -> None:
    folder = workshop.model("llama", LLAMA)
    every = {"max_steps": 6, "checkpoint_every": 1, "keep_checkpoints": 9}
    half = workshop.done("fp16", {"model": folder}, precision="fp16", **every)
    whole = workshop.done("fp32-alike", {"model": folder}, max_steps=6)
    assert half.metrics() == pytest.approx(whole.metrics(), rel=0.02)
    assert half.metrics() != whole.metrics()
    assert half.metrics("grad_norm") == pytest.approx(whole.metrics("grad_norm"), rel=0.05)

    sizes = {"hidden_size": 256, "intermediate_size": 1024, "initializer_range": 1.0}
    large = workshop.model("large-weights", {**LLAMA, **sizes, "tie_word_embeddings": False})
    over = workshop.done("overflowing", {"model": large}, precision="fp16", **every)
    overflowed = [one["step"] for one in over.events if one["event"] == "metrics" and "grad_norm" in one["nonfinite"]]
    left_out = [step for step in range(2, 7) if same_weights(over.trained(step - 1), over.trained(step))]
    assert left_out == [step for step in overflowed if step > 1] != []


def test_bf16_trains_a_model_that_is_an_input_of_the_job(workshop: Any) -> None:
    inputs = {"model": workshop.model("llama", LLAMA)}
    done = workshop.done("bf16", {"config": {}}, precision="bf16", max_steps=4, inputs=inputs)
    alike = workshop.done("fp32", {"model": "llama"}, max_steps=4)
    assert done.metrics() == pytest.approx(alike.metrics(), rel=0.02)
    assert done.metrics() != alike.metrics()
