"""What ``resume_proof.py`` trains with transformers: as a job of hostcore, and by its own ``Trainer``.

The model is a small ``LlamaForCausalLM`` with dropout in its attention, stored once, as both find it.
"""

import json
import random
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from resume_proof import BATCH, EPOCHS, EVERY, ROWS, note

from hostcore_hookspecs import hookimpl

LENGTH, VOCABULARY = 16, 256
RATE = 1e-3


class Note:
    """Writes down what each step has done, around the trainer's own ``train_step``."""

    @hookimpl(wrapper=True)
    def train_step(self, prepared_batch: Any, ctx: Any) -> Generator[None, Any, Any]:
        result = yield
        note(ctx.run_state.step + 1, prepared_batch["input_ids"].tolist(), result.metrics["loss"].item())
        return result


def prepare(place: Path) -> None:
    """The texts, the tokenizer and the model; the job."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<pad>": 0, "</s>": 1} | {f"w{number}": number for number in range(2, VOCABULARY)}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(place / "llama")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, attention_dropout=0.1, eos_token_id=1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(place / "llama")
    rng = random.Random(0)
    texts = []
    for _ in range(ROWS):
        at, text = rng.randrange(VOCABULARY), []
        for _ in range(LENGTH - 1):
            at = at + 1 if rng.random() < 0.8 else rng.randrange(VOCABULARY)
            text.append(f"w{2 + at % (VOCABULARY - 2)}")
        texts.append(" ".join(text))
    pq.write_table(pa.table({"text": texts}), place / "rows.parquet", row_group_size=256)
    job = {
        "run_id": "proof",
        "trainer": "transformers",
        "hyperparams": {"model": "llama", "max_length": LENGTH, "learning_rate": RATE},
        "callbacks": [{"use": "resume_transformers:Note"}],
        "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": BATCH, "shuffle": True},
        "epochs": EPOCHS,
        "checkpoint_every": EVERY,
        "device": "cpu",
        "terminal": False,
    }
    (place / "job.json").write_text(json.dumps(job))


def train(place: Path) -> None:
    """From the last checkpoint, if there is one."""
    import pyarrow.parquet as pq
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )
    from transformers.trainer_utils import get_last_checkpoint

    class Noting(Trainer):
        def training_step(self, model: Any, inputs: Any, *others: Any) -> Any:
            loss = super().training_step(model, inputs, *others)
            note(self.state.global_step + 1, inputs["input_ids"].tolist(), loss.item())
            return loss

    checkpoints = place / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    texts = pq.read_table(place / "rows.parquet")["text"].to_pylist()
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        save_steps=EVERY,
        save_total_limit=3,
        seed=0,
        use_cpu=True,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Noting(
        model=AutoModelForCausalLM.from_pretrained(place / "llama"),
        args=arguments,
        train_dataset=[{"input_ids": [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]} for text in texts],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(checkpoints)) is not None)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
