"""The same model on the same data as under ``transformers.Trainer``: the same losses, to the last bit."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from transformers_workshop import BERT, GPT2, LLAMA

STEPS = 30


def trainer_losses(path: Path, model: Any, rows: list[dict[str, Any]], **arguments: Any) -> list[float]:
    """Its losses at each of the steps, with the rows in their order."""
    import transformers

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(rows)

    tokenizer = transformers.AutoTokenizer.from_pretrained(path / "tokenizer")

    def collate(batch: list[dict[str, Any]]) -> Any:
        """Pads as the trainer of hostcore does: labels are ignored where there is nothing to attend to."""
        padded = tokenizer.pad([{"input_ids": one["input_ids"]} for one in batch], return_tensors="pt")
        if "label" in batch[0]:
            return {**padded, "labels": torch.tensor([one["label"] for one in batch])}
        return {**padded, "labels": padded["input_ids"].masked_fill(padded["attention_mask"] == 0, -100)}

    options = transformers.TrainingArguments(
        output_dir=str(path / "theirs"),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        optim="adamw_torch",
        remove_unused_columns=False,
        **arguments,
    )
    trainer = InOrder(model=model, args=options, train_dataset=rows, data_collator=collate)
    trainer.train()
    return [one["loss"] for one in trainer.state.log_history if "loss" in one]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_causal_model_has_the_losses_of_transformers_trainer(workshop: Any, schedule: str) -> None:
    import transformers

    torch.set_num_threads(1)
    folder = workshop.model("llama", LLAMA)
    hyperparams = {"model": folder, "schedule": schedule, "warmup_steps": 5, "weight_decay": 0.1}
    ours = workshop.done(f"fidelity-{schedule}", hyperparams, max_steps=STEPS).metrics()

    tokenizer = transformers.AutoTokenizer.from_pretrained(workshop.path / "tokenizer")
    text = pq.read_table(workshop.path / "train.parquet").column("text").to_pylist()
    rows = [{"input_ids": [*tokenizer(one)["input_ids"], tokenizer.eos_token_id][:32]} for one in text]
    model = transformers.AutoModelForCausalLM.from_pretrained(workshop.path / folder)
    theirs = trainer_losses(workshop.path, model, rows, lr_scheduler_type=schedule, warmup_steps=5, weight_decay=0.1)
    assert list(ours.values()) == theirs


def test_a_classifier_has_the_losses_of_transformers_trainer(workshop: Any) -> None:
    import transformers

    torch.set_num_threads(1)
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    folder = workshop.model("bert-classes", BERT, "AutoModelForSequenceClassification", num_labels=3, **quiet)
    hyperparams = {"model": folder, "task": "sequence-classification", "num_labels": 3}
    ours = workshop.done("fidelity-classes", hyperparams, max_steps=STEPS).metrics()

    tokenizer = transformers.AutoTokenizer.from_pretrained(workshop.path / "tokenizer")
    table = pq.read_table(workshop.path / "train.parquet")
    rows = [
        {"input_ids": tokenizer(text)["input_ids"][:32], "label": label}
        for text, label in zip(table.column("text").to_pylist(), table.column("label").to_pylist(), strict=True)
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(workshop.path / folder, num_labels=3)
    theirs = trainer_losses(workshop.path, model, rows)
    assert list(ours.values()) == theirs


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
