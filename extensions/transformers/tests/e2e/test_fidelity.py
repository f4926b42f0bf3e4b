"""The same model on the same data as under ``transformers.Trainer``: the same losses, to the last bit."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from transformers_workshop import BERT, GPT2, LLAMA, MIXTRAL, losses_with, save_tokenizer

from hostcore.worker.feed.transform_call import generator
from hostcore_toolkit import seed_everything
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.packing import Packer
from hostcore_transformers.tasks import load_task

STEPS = 30
SEED = 3


def trainer_losses(path: Path, model: Any, rows: list[dict[str, Any]], **arguments: Any) -> list[float]:
    """Its losses at each of the steps, with the rows in their order."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(path / "tokenizer")

    def collate(batch: list[dict[str, Any]]) -> Any:
        """Pads as the trainer of hostcore does: labels are ignored where there is nothing to attend to."""
        padded = tokenizer.pad([{"input_ids": one["input_ids"]} for one in batch], return_tensors="pt")
        if "label" in batch[0]:
            return {**padded, "labels": torch.tensor([one["label"] for one in batch])}
        return {**padded, "labels": padded["input_ids"].masked_fill(padded["attention_mask"] == 0, -100)}

    return losses_with(path, model, rows, collate, max_steps=STEPS, **arguments)


@pytest.mark.parametrize("way", ["linear", "cosine", "classes"])
def test_a_model_has_the_losses_of_transformers_trainer(workshop: Any, way: str) -> None:
    import transformers

    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(workshop.path / "tokenizer")
    table = pq.read_table(workshop.path / "train.parquet")
    rows = [{"input_ids": tokenizer(text)["input_ids"]} for text in table.column("text").to_pylist()]
    arguments: dict[str, Any] = {}
    if way == "classes":
        kind = transformers.AutoModelForSequenceClassification
        folder = workshop.model("bert-classes", BERT, kind.__name__, num_labels=3, **QUIET)
        settings: dict[str, Any] = {"task": "sequence-classification", "num_labels": 3}
        for row, label in zip(rows, table.column("label").to_pylist(), strict=True):
            row["label"] = label
    else:
        kind, folder = transformers.AutoModelForCausalLM, workshop.model("llama", LLAMA)
        settings = {"schedule": way, "warmup_steps": 5, "weight_decay": 0.1}
        arguments = {"lr_scheduler_type": way, "warmup_steps": 5, "weight_decay": 0.1}
        for row in rows:
            row["input_ids"].append(tokenizer.eos_token_id)
    for row in rows:
        row["input_ids"] = row["input_ids"][:32]
    ours = workshop.done(f"fidelity-{way}", {"model": folder, **settings}, max_steps=STEPS).metrics()
    model = kind.from_pretrained(workshop.path / folder)
    assert list(ours.values()) == trainer_losses(workshop.path, model, rows, **arguments)


QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
#: What the job has beside the model, and what the arguments of transformers.Trainer have.
WIDER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "masked": ({"task": "masked-lm"}, {}, {}),
    "packed": ({"packing": True, "max_length": 16}, {"accumulate": 2}, {"gradient_accumulation_steps": 2}),
    "lora": ({"lora": {"rank": 4, "target_modules": ["q_proj", "v_proj"]}}, {}, {}),
    "bf16": ({}, {"precision": "bf16"}, {"bf16": True}),
    "experts": ({}, {}, {}),
    "min-lr": (
        {"warmup_ratio": 0.25, "schedule": "cosine_with_min_lr", "schedule_options": {"min_lr_rate": 0.1}},
        {},
        {
            "warmup_steps": 0.25,
            "lr_scheduler_type": "cosine_with_min_lr",
            "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        },
    ),
    "adafactor": ({"optimizer": "adafactor", "weight_decay": 0.1}, {}, {"optim": "adafactor", "weight_decay": 0.1}),
    "momentum": (
        {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}},
        {},
        {"optim": "sgd", "optim_args": "momentum=0.9"},
    ),
    "8-bit": ({"optimizer": "adamw_8bit"}, {}, {"optim": "adamw_8bit"}),
    "frozen": ({"frozen": ["embed_tokens", r"layers\.0\."]}, {}, {}),
    "lora-all": ({"lora": {"rank": 4, "target_modules": "all-linear", "modules_to_save": ["norm"]}}, {}, {}),
    "checkpointing": ({"gradient_checkpointing": True}, {}, {"gradient_checkpointing": True}),
    "smoothed": (
        {"label_smoothing": 0.1},
        {"accumulate": 2},
        {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2},
    ),
}


def their_model(folder: Path, way: str) -> Any:
    import peft
    import transformers

    kind = "AutoModelForMaskedLM" if way == "masked" else "AutoModelForCausalLM"
    model = getattr(transformers, kind).from_pretrained(folder)
    if way == "frozen":
        model.model.embed_tokens.requires_grad_(False)
        model.model.layers[0].requires_grad_(False)
    if not way.startswith("lora"):
        return model
    seed_everything(SEED)  # of the new adapters
    chosen: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}
    if way == "lora-all":
        chosen = {"target_modules": "all-linear", "modules_to_save": ["norm"]}
    config = peft.LoraConfig(r=4, lora_alpha=16.0, task_type="CAUSAL_LM", **chosen)
    return peft.get_peft_model(model, config)


@pytest.mark.parametrize("way", WIDER)
def test_other_ways_have_the_losses_of_transformers_trainer(workshop: Any, way: str) -> None:
    """On the batches of the job: the masks and blocks of others are theirs."""
    torch.set_num_threads(1)
    settings, keys, arguments = WIDER[way]
    bert = {**BERT, **QUIET}
    folder = workshop.model("bert-masked", bert, "AutoModelForMaskedLM") if way == "masked" else "llama"
    workshop.model("llama", LLAMA)
    folder = workshop.model("mixtral", MIXTRAL) if way == "experts" else folder
    steps = 10
    ours = workshop.done(f"wider-{way}", {"model": folder, **settings}, max_steps=steps, seed=SEED, **keys).metrics()

    hyperparams = Hyperparams(**{"max_length": 32, "tokenizer": workshop.path / "tokenizer", **settings})
    task = load_task(hyperparams, {})
    packer, batches = Packer(hyperparams.max_length), []
    for rows in pq.read_table(workshop.path / "train.parquet").to_batches(max_chunksize=4):
        encoded: Any = task.encode(rows, generator(SEED, 0, 4 * len(batches)))
        batches.append(packer.take(encoded) if hyperparams.packing else encoded)
    assert all(len(one["labels"]) > 0 for one in batches)
    model = their_model(workshop.path / folder, way)
    alone = {"per_device_train_batch_size": 1, "max_steps": steps, **arguments}
    theirs = losses_with(workshop.path, model, batches, lambda one: one[0], **alone)
    # torch's smoothing adds in another order than transformers'
    assert list(ours.values()) == (pytest.approx(theirs, rel=1e-5) if way == "smoothed" else theirs)


MARKED = (
    "{% for one in messages %}{{ one['role'] + ': ' }}{% if one['role'] == 'assistant' %}{% generation %}"
    "{{ one['content'] + '</s>' }}{% endgeneration %}{% else %}{{ one['content'] + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
ANSWERS = {"marked": MARKED, "unmarked": MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")}


@pytest.mark.parametrize("template", ANSWERS)
def test_answers_alone_have_the_losses_of_transformers_trainer(workshop: Any, template: str) -> None:
    """With the labels of TRL's ``assistant_only_loss``: the chat template's own mask of the assistant's tokens."""
    import transformers

    torch.set_num_threads(1)
    folder = workshop.model("llama", LLAMA)
    tokens = {"pad_token": "<pad>", "eos_token": "</s>"}
    save_tokenizer(workshop.path / template, chat=ANSWERS[template], **tokens)
    save_tokenizer(workshop.path / "marked", chat=MARKED, **tokens)
    tokenizer = transformers.AutoTokenizer.from_pretrained(workshop.path / "marked")
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    rows = []
    for messages in pq.read_table(workshop.path / "train.parquet").column("messages").to_pylist():
        found = tokenizer.apply_chat_template(messages, **options)
        ids, answers = found["input_ids"], found["assistant_masks"]
        rows.append(
            {"input_ids": ids, "learned": [one if own else -100 for one, own in zip(ids, answers, strict=True)]}
        )

    def collate(batch: list[dict[str, Any]]) -> Any:
        padded = tokenizer.pad([{"input_ids": one["input_ids"]} for one in batch], return_tensors="pt")
        longest = padded["input_ids"].shape[1]
        labels = [one["learned"] + [-100] * (longest - len(one["learned"])) for one in batch]
        return {**padded, "labels": torch.tensor(labels)}

    settings = {"tokenizer": template, "messages_column": "messages", "learn_from": "answers", "max_length": 128}
    ours = workshop.done(f"answers-{template}", {"model": folder, **settings}, max_steps=10).metrics()
    model = transformers.AutoModelForCausalLM.from_pretrained(workshop.path / folder)
    arguments = {"per_device_train_batch_size": 4, "max_steps": 10}
    assert list(ours.values()) == losses_with(workshop.path, model, rows, collate, **arguments)


def test_the_loss_of_gpt2_is_the_mean_over_what_it_predicts(workshop: Any) -> None:
    """transformers.Trainer 5.23 divides by one more for each row: its loss is too small."""
    import transformers

    torch.set_num_threads(1)
    folder = workshop.model("gpt2", GPT2)
    ours = workshop.done("gpt2-first", {"model": folder}, max_steps=1).metrics()
    tokenizer = transformers.AutoTokenizer.from_pretrained(workshop.path / "tokenizer")
    text = pq.read_table(workshop.path / "train.parquet").column("text").to_pylist()[:4]
    ids = [[*tokenizer(one)["input_ids"], tokenizer.eos_token_id][:32] for one in text]
    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
    model = transformers.AutoModelForCausalLM.from_pretrained(workshop.path / folder)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    assert ours[1] == pytest.approx(model(**batch, labels=labels).loss.item(), rel=1e-6)


T5 = {
    "model_type": "t5", "vocab_size": 320, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "dropout_rate": 0.0, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
BART = {
    "model_type": "bart", "vocab_size": 320, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 128, "dropout": 0.0, "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize("config", [T5, BART], ids=["t5", "bart"])
def test_encoders_with_decoders_have_the_losses_of_transformers_trainer(workshop: Any, config: Any) -> None:
    import transformers

    torch.set_num_threads(1)
    kind, auto = config["model_type"], "AutoModelForSeq2SeqLM"
    folder = workshop.model(f"{kind}-seq2seq", config, auto)
    settings = {"model": folder, "task": "seq2seq", "target_column": "json", "temperature": 0.0, "max_new_tokens": 5}
    keys = {"validation": {"parquet_paths": ["train.parquet"], "batch_size": 8}, "validate_every": 10}
    keys |= {"samples": [{"prompt": "the mill"}], "sample_every": 10, "max_steps": 10}
    done = workshop.done(f"fidelity-{kind}", settings, **keys)
    tokenizer = transformers.AutoTokenizer.from_pretrained(done.trained(10))
    table = pq.read_table(workshop.path / "train.parquet")
    columns = [table.column(name).to_pylist() for name in ("text", "json")]
    end = tokenizer.eos_token_id
    rows = [
        {"input_ids": tokenizer(text)["input_ids"][:32], "labels": [*tokenizer(target)["input_ids"], end][:32]}
        for text, target in zip(*columns, strict=True)
    ]
    model = getattr(transformers, auto).from_pretrained(workshop.path / folder)
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    theirs = losses_with(workshop.path, model, rows, collate, per_device_train_batch_size=4, max_steps=10)
    assert list(done.metrics().values()) == theirs
    assert done.validations()[-1].keys() >= {"val/perplexity", "val/token_accuracy"}
    trained = getattr(transformers, auto).from_pretrained(done.trained(10))
    assert all(torch.equal(one, other) for one, other in zip(trained.parameters(), model.parameters(), strict=True))
    assert len(list(done.path.glob("samples/*/0/sample.txt"))) == 1
