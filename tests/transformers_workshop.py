"""A tokenizer and tiny models, made on the spot, in a folder with texts; runs by the installed command."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from fork_server import hostcore

BERT = {
    "model_type": "bert", "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 128,
}  # fmt: skip
LLAMA = {**BERT, "model_type": "llama", "tie_word_embeddings": True}
#: A mixture of experts, which learns from its router's loss.
MIXTRAL = {
    **BERT, "model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
    "output_router_logits": True, "router_aux_loss_coef": 0.02,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "vocab_size": 320, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip

#: What every worker of these jobs imports; see ``fork_server.popen``.
FRAMEWORK = ("transformers_offline",)

CHAT = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"

SENTENCE = "the mill turns when the wind blows and rests while the miller sleeps under an old oak by the slow river"
WORDS = SENTENCE.split()


def texts(count: int = 96) -> list[str]:
    """Sentences of different lengths, the same ones each time."""
    return [" ".join(WORDS[(3 * at + k) % len(WORDS)] for k in range(3 + at % 9)) for at in range(count)]


@attrs.frozen
class Finished:
    """A command that has ended, and the run directory that it wrote."""

    code: int
    output: str
    path: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "logs/events.jsonl").read_text().splitlines()]

    def metrics(self, name: str = "train/loss") -> dict[int, float]:
        return {one["step"]: one["metrics"][name] for one in self.events if one["event"] == "metrics"}

    def validations(self) -> list[dict[str, float]]:
        return [one["metrics"] for one in self.events if one["event"] == "validation"]

    def trained(self, step: int) -> Path:
        return self.path / f"checkpoints/step-{step:06d}/trainer"

    def warnings(self) -> list[str]:
        return [one["message"] for one in self.events if one["event"] == "warning"]


@attrs.frozen
class Workshop:
    """The folder: ``train.parquet``, ``tokenizer/``, and the models that tests ask for.

    :ivar imported: What the processes of its commands find imported. Nothing: a test sets variables that the libraries
        read when they are imported.
    """

    path: Path
    imported: Sequence[str] = FRAMEWORK

    def job(self, name: str, hyperparams: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
        settings = {"config": LLAMA, "tokenizer": "tokenizer", "max_length": 32, "learning_rate": 1e-3, **hyperparams}
        if "model" in hyperparams:
            del settings["config"]
        return {
            "trainer": "transformers",
            "run_id": name,
            "device": "cpu",
            "terminal": False,
            "hyperparams": settings,
            "dataset": {"parquet_paths": ["train.parquet"], "batch_size": 4},
            "metric_every": 1,
            "max_steps": 6,
            **keys,
        }

    def start(self, name: str, hyperparams: Mapping[str, Any], **keys: Any) -> "subprocess.Popen[str]":
        job = self.job(name, hyperparams, **keys)
        if "devices" in job:
            del job["device"]
        file = self.path / f"{name}.json"
        file.write_text(json.dumps(job))
        return self._command("run", file.name)

    def run(self, name: str, hyperparams: Mapping[str, Any], **keys: Any) -> Finished:
        process = self.start(name, hyperparams, **keys)
        output, _ = process.communicate(timeout=600)
        return Finished(process.returncode, output, self.path / "runs" / name)

    def done(self, name: str, hyperparams: Mapping[str, Any], **keys: Any) -> Finished:
        finished = self.run(name, hyperparams, **keys)
        assert finished.code == 0, finished.output
        return finished

    def command(self, *arguments: str) -> tuple[int, str]:
        process = self._command(*arguments)
        output, _ = process.communicate(timeout=900)
        return process.returncode, output

    def _command(self, *arguments: str) -> "subprocess.Popen[str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        return hostcore(
            arguments,
            imported=self.imported,
            cwd=self.path,
            env={"HF_HUB_OFFLINE": "1", **clean, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def model(self, name: str, config: Mapping[str, Any], kind: str = "AutoModelForCausalLM", **extra: Any) -> str:
        """A model with weights, in a folder of this name."""
        import transformers

        if not (self.path / name).exists():
            given = dict(config)
            made = transformers.AutoConfig.for_model(given.pop("model_type"), **given, **extra)
            torch.manual_seed(7)
            getattr(transformers, kind).from_config(made).save_pretrained(self.path / name)
        return name


def save_tokenizer(folder: Path, *, chat: str | None = None, **tokens: str) -> None:
    """Train a byte-level tokenizer on the texts, and save it as ``from_pretrained`` wants it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<pad>", "</s>", "<mask>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    made.chat_template = chat
    made.save_pretrained(folder)


def make_workshop(path: Path) -> Workshop:
    """The folder with its data and its tokenizer."""
    rows = texts()
    conversations = [
        [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
        for one, other in zip(rows, reversed(rows), strict=True)
    ]
    columns = {
        "text": rows,
        "label": [len(one.split()) % 3 for one in rows],
        "messages": conversations,
        "json": [json.dumps(one) for one in conversations],
    }
    pq.write_table(pa.table(columns), path / "train.parquet")
    save_tokenizer(path / "tokenizer", chat=CHAT, pad_token="<pad>", eos_token="</s>", mask_token="<mask>")
    return Workshop(path)


def losses_with(path: Path, model: Any, rows: list[Any], collate: Any, **arguments: Any) -> list[float]:
    """Return the losses of ``transformers.Trainer`` at each step, with four rows in each batch, in their order."""
    import transformers

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(rows)

    options = transformers.TrainingArguments(
        output_dir=str(path / "theirs"),
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        remove_unused_columns=False,
        **{"per_device_train_batch_size": 4, "optim": "adamw_torch", **arguments},
    )
    trainer = InOrder(model=model, args=options, train_dataset=rows, data_collator=collate)
    trainer.train()
    return [one["loss"] for one in trainer.state.log_history if "loss" in one]


def same_weights(one: Path, other: Path) -> bool:
    """Return whether the files of weights in two folders are the same to the last bit."""
    from safetensors.torch import load_file

    (file,) = {path.name for path in one.glob("*.safetensors")}
    first, second = load_file(one / file), load_file(other / file)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


KILL_ONCE = """
import os, pathlib, signal, time

class KillOnce:
    def on_batch_end(self, run_state, ctx):
        mark = pathlib.Path(ctx.run_dir, "killed")
        if run_state.step == 6 and ctx.rank == 0 and not mark.exists():
            while not pathlib.Path(ctx.run_dir, "checkpoints/step-000004.json").exists():
                time.sleep(0.01)  # it is written in the background
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_and_started_again(workshop: Any, name: str, hyperparams: Any, **keys: Any) -> Any:
    """The run, whose first rank is killed at its sixth step; it goes on from the checkpoint of the fourth."""
    (workshop.path / "kill_once.py").write_text(KILL_ONCE)
    keys |= {"callbacks": [{"use": "kill_once:KillOnce"}], "max_restarts": 1}
    again = workshop.done(name, hyperparams, **keys)
    assert [one["step"] for one in again.events if one["event"] == "run_resumed"] == [4]
    return again
