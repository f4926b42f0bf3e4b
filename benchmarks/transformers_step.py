"""What a step of a transformers model costs: in a bare loop, under ``transformers.Trainer``, and as a run of hostcore.

The same small Llama and the same texts each time (4 rows of 32 tokens), AdamW, a linear schedule and clipped gradients,
one thread, on the CPU, in turns. The time of a step is that from the first forward pass to the last, by the steps
between: by the clock, and in processor time of the process, which a busy machine changes less. The bare loop and the
Trainer have token ids; hostcore tokenizes the texts. Both record metrics each 100 steps; neither writes checkpoints.

    pip install './extensions/transformers[lora]' accelerate
    python benchmarks/transformers_step.py [--rounds 5] [--steps 300] [--json FILE]
"""

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
import pyarrow as pa
import pyarrow.parquet as pq
import results
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.models.llama.modeling_llama import LlamaModel

from hostcore.in_process import run

ROWS, TOKENS, WORDS = 4, 32, 300
#: Of each forward pass: the wall clock, and the processor time of this process.
CALLS: list[tuple[float, float]] = []


def timed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def noting(*given: Any, **named: Any) -> Any:
        CALLS.append((time.perf_counter(), time.process_time()))
        return forward(*given, **named)

    return noting


def prepare(folder: Path, steps: int) -> None:
    """A tokenizer of whole words, a model with new weights, and texts."""
    words = {f"w{number}": number + 2 for number in range(WORDS)}
    plain = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, **words}, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder / "model")
    config = transformers.LlamaConfig(
        vocab_size=WORDS + 2, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=TOKENS, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    drawn = torch.randint(WORDS, (steps * ROWS, TOKENS - 1), generator=torch.Generator().manual_seed(0))
    pq.write_table(
        pa.table({"text": [" ".join(f"w{one}" for one in row) for row in drawn.tolist()]}), folder / "t.parquet"
    )


def token_ids(folder: Path) -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    texts = pq.read_table(folder / "t.parquet")["text"].to_pylist()
    return [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]


def bare(folder: Path, steps: int) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = transformers.get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=steps)
    rows = token_ids(folder)
    for step in range(steps):
        ids = torch.tensor(rows[step * ROWS : (step + 1) * ROWS])
        model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()


def trainer(folder: Path, steps: int) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "theirs"), max_steps=steps, per_device_train_batch_size=ROWS, logging_steps=100,
        save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, optim="adamw_torch",
    )  # fmt: skip
    transformers.Trainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder / "model"),
        args=arguments,
        train_dataset=[{"input_ids": row} for row in token_ids(folder)],
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
    ).train()


def hostcore(folder: Path, steps: int) -> None:
    result = run(
        {
            "trainer": "transformers",
            "hyperparams": {"model": str(folder / "model"), "max_length": TOKENS},
            "dataset": {"parquet_paths": [str(folder / "t.parquet")], "batch_size": ROWS},
            "max_steps": steps,
            "metric_every": 100,
            "device": "cpu",
            "terminal": False,
        }
    )
    assert result.status == "succeeded", result.error


def measured(way: Callable[[Path, int], None], steps: int) -> Iterator[float]:
    """Microseconds a step: by the clock, and of processor time."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        prepare(Path(folder), steps)
        CALLS.clear()
        way(Path(folder), steps)
        os.chdir(before)
    assert len(CALLS) == steps
    return ((last - first) / (steps - 1) * 1e6 for first, last in zip(CALLS[0], CALLS[-1], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    results.add_option(parser)
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    LlamaModel.forward = timed(LlamaModel.forward)
    ways = (bare, trainer, hostcore)
    found: dict[str, list[float]] = {way.__name__ + of: [] for of in ("", ", CPU") for way in ways}
    for _ in range(given.rounds):
        for way in ways:
            clock, processor = measured(way, given.steps)
            found[way.__name__].append(clock)
            found[way.__name__ + ", CPU"].append(processor)
    for name, times in found.items():
        print(f"{name:14} {statistics.median(times):8.0f} us  ({min(times):.0f}..{max(times):.0f})")
    results.write(given.json, "transformers_step", results.rows("us", found), steps=given.steps)


if __name__ == "__main__":
    main()
