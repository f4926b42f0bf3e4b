"""The usual mistakes: one clear error each, that says where, and no traceback."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import hostcore
from transformers_workshop import BERT, FRAMEWORK, LLAMA, save_tokenizer

NO_BEGINNING = {
    "model_type": "t5", "vocab_size": 320, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2,
}  # fmt: skip
CASES = {
    "no model": ({"config": {}}, "/hyperparams/model", "the job names no model"),
    "no folder": ({"model": "nowhere"}, "/hyperparams/model", "there is no such folder"),
    "no model in the folder": ({"model": "tokenizer"}, "/hyperparams/model", "it has no config.json"),
    "no tokenizer": ({"tokenizer": "llama"}, "/hyperparams/tokenizer", "it has no tokenizer_config.json"),
    "no tokenizer named": ({"tokenizer": None}, "/hyperparams/tokenizer", "a model from a config needs one"),
    "small vocabulary": (
        {"config": {**LLAMA, "vocab_size": 100}},
        "/hyperparams/config/vocab_size",
        "the model embeds 100",
    ),
    "unknown architecture": ({"config": {"model_type": "lama"}}, "/hyperparams/config", "cannot make this model"),
    "no option of the schedule": (
        {"schedule": "cosine_with_min_lr", "schedule_options": {"floor": 1}},
        "/hyperparams/schedule_options",
        'the schedule "cosine_with_min_lr" does not take them',
    ),
    "no option of the optimizer": (
        {"optimizer": "sgd", "optimizer_options": {"momentun": 0.9}},
        "/hyperparams/optimizer_options",
        "\"sgd\" does not take them: SGD.__init__() got an unexpected keyword argument 'momentun'",
    ),
    "no betas": ({"optimizer": "adafactor", "adam_betas": [0.9, 0.99]}, "/hyperparams/adam_betas", "has none"),
    "paging without a GPU": ({"optimizer": "paged_adamw"}, "/hyperparams/optimizer", "the device is cpu"),
    "fp16 in parts": ({"strategy": "fsdp2"}, "/hyperparams/strategy", "overflow on some of them alone"),
    "nothing to freeze": ({"frozen": ["lm_heat"]}, "/hyperparams/frozen/0", "is in no parameter's name"),
    "all frozen": ({"frozen": ["."]}, "/hyperparams/frozen", "nothing is left to be trained"),
    "no regular expression": ({"frozen": ["("]}, "/hyperparams/frozen/0", "is no regular expression"),
    "no layer to save": (
        {"model": "llama", "lora": {"modules_to_save": ["head"]}},
        "/hyperparams/lora/modules_to_save",
        "the model has no layer 'head'",
    ),
    "answers of texts": ({"learn_from": "answers"}, "/learn_from", "answers are of conversations"),
    "packed answers": (
        {"learn_from": "answers", "messages_column": "messages", "packing": True},
        "/learn_from",
        "do not know which tokens are answers",
    ),
    "no router": ({"router_loss": 0.01}, "/hyperparams/router_loss", "LlamaForCausalLM has no loss of a router"),
    "another head": (
        {"config": {"model_type": "t5"}},
        "/hyperparams/config",
        "tasks for 't5': sequence-classification, token-classification, question-answering, seq2seq",
    ),
    "no task": ({"config": {"model_type": "sam"}}, "/hyperparams/config", "has no task for 'sam'"),
    "images without a processor": (
        {"config": {"model_type": "vit"}, "task": "image-classification"},
        "/hyperparams/processor",
        "needs a processor",
    ),
    "other classes than those of the model": (
        {"model": "two-classes", "task": "sequence-classification", "num_labels": 3},
        "/hyperparams/model",
        'set "new_head" to learn other classes',
    ),
    "a new head on other weights": (
        {"model": "reshaped", "new_head": True},
        "/hyperparams/model",
        "and are not of the head",
    ),
    "samples of classes": (
        {"task": "sequence-classification", "config": BERT, "num_labels": 3},
        "/samples",
        "samples need a model that writes text",
    ),
    "no target": ({"task": "seq2seq"}, "/dataset", 'the data has no column "target"'),
    "no beginning": (
        {"task": "seq2seq", "target_column": "text", "config": NO_BEGINNING},
        "/hyperparams/config",
        'has no "decoder_start_token_id"',
    ),
    "no type": ({"config": {"hidden_size": 3}}, "/hyperparams/config", 'no "model_type"'),
    "no labels": (
        {"task": "sequence-classification", "config": BERT, "label_column": "klass"},
        "/dataset",
        'the data has no column "klass"',
    ),
    "too many classes": (
        {"task": "sequence-classification", "config": BERT, "num_labels": 2},
        "",
        'the column "label" has 2, and the classes are 0 to 1',
    ),
    "packing of classes": ({"task": "masked-lm", "config": BERT, "packing": True}, "/packing", "it is for"),
    "adapters of new weights": ({"lora": {}}, "/lora", "a model that has learned something"),
    "unknown layers": (
        {"model": "llama", "lora": {"target_modules": ["queries"]}},
        "/hyperparams/lora/target_modules",
        "queries",
    ),
    "an adapter in place of a model": ({"model": "adapter"}, "/hyperparams/model", "has an adapter, and no model"),
    "no adapter": ({"model": "llama", "adapter": "llama"}, "/hyperparams/adapter", "has no adapter"),
    "an adapter that loads code": (
        {"model": "llama", "adapter": "adapter"},
        "/hyperparams/adapter",
        'has "megatron_core", which this trainer does not know',
    ),
    "two settings of adapters": ({"model": "llama", "adapter": "llama", "lora": {}}, "/adapter", 'remove "lora"'),
    "no mask": ({"task": "masked-lm", "config": BERT, "tokenizer": "plain"}, "/hyperparams/tokenizer", "no mask token"),
    "tokens that a template writes": (
        {"messages_column": "messages", "chat_template": "chatml"},
        "/hyperparams/chat_template",
        'add them by "special_tokens": ["<|im_start|>", "<|im_end|>"]',
    ),
    "no file of a template": (
        {"messages_column": "messages", "chat_template": "chatlm"},
        "/hyperparams/chat_template",
        "one of chatml, llama3, mistral, gemma, zephyr",
    ),
    "no template": (
        {"messages_column": "messages", "tokenizer": "plain"},
        "/hyperparams/messages_column",
        "no chat template",
    ),
    "no padding": ({"tokenizer": "bare"}, "/hyperparams/tokenizer", "no token to pad with"),
    "another shape than that of the weights": (
        {"model": "reshaped"},
        "/hyperparams/model",
        "cannot make this model",
    ),
    "a text is missing": ({}, "", 'has no text in "text"'),
    "no column to validate on": ({}, "", 'the validation data has no column "text"; it has: body'),
    "unknown setting": ({"learningrate": 0.1}, "/hyperparams/learningrate", 'did you mean "learning_rate"'),
}


#: What the job has beside these hyperparameters.
KEYS: dict[str, dict[str, Any]] = {
    "fp16 in parts": {"precision": "fp16", "devices": ["cpu", "cpu"]},
    "a text is missing": {"dataset": {"parquet_paths": ["missing.parquet"], "batch_size": 4}},
    "samples of classes": {"samples": [{"prompt": "the mill"}], "sample_every": 2},
    "no column to validate on": {
        "validation": {"parquet_paths": ["other.parquet"], "batch_size": 2},
        "validate_every": 2,
    },
}


@pytest.fixture(scope="module")
def prepared(workshop: Any) -> Any:
    workshop.model("llama", LLAMA)
    workshop.model("two-classes", BERT, "AutoModelForSequenceClassification")
    save_tokenizer(workshop.path / "plain", pad_token="<pad>", eos_token="</s>")
    save_tokenizer(workshop.path / "bare")
    shutil.copytree(workshop.path / "llama", workshop.path / "reshaped")
    (workshop.path / "adapter").mkdir()
    adapter = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "megatron_core": "any_module"}
    (workshop.path / "adapter/adapter_config.json").write_text(json.dumps(adapter))
    config = workshop.path / "reshaped/config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))
    texts = pa.table({"text": ["the mill", None, "the river", "the oak"]})
    pq.write_table(texts, workshop.path / "missing.parquet")
    pq.write_table(pa.table({"body": ["the mill", "the oak"]}), workshop.path / "other.parquet")
    return workshop


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_clear_error(prepared: Any, case: str) -> None:
    hyperparams, pointer, message = CASES[case]
    finished = prepared.run(f"mistake-{list(CASES).index(case)}", hyperparams, **KEYS.get(case, {}))
    assert finished.code in {1, 2}, finished.output
    assert message in finished.output
    assert pointer in finished.output
    assert "Traceback" not in finished.output


def test_without_a_compiler_nothing_is_compiled(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    finished = prepared.run("compiler", {"config": LLAMA, "torch_compile": True})
    assert finished.code == 2, finished.output
    assert "at: /hyperparams/torch_compile" in finished.output
    assert "Traceback" not in finished.output


CODE = """
import pathlib
pathlib.Path("it-ran").touch()
"""


@pytest.mark.parametrize("part", ["model", "configuration", "tokenizer"])
@pytest.mark.parametrize("command", [("run", "--in-process"), ("run",)])
def test_code_of_a_folder_is_neither_run_nor_asked_about(
    workshop: Any, tmp_path: Path, part: str, command: tuple[str, ...]
) -> None:
    save_tokenizer(tmp_path / "evil", pad_token="<pad>", eos_token="</s>")
    (tmp_path / "evil/evil.py").write_text(CODE)
    of_model = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    config = {"model_type": "evil", "auto_map": of_model} if part == "configuration" else dict(LLAMA)
    if part == "model":  # it has a configuration of transformers, and no model for the task
        config = {"model_type": "vit", "auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    (tmp_path / "evil/config.json").write_text(json.dumps(config))
    if part == "tokenizer":
        document = {"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}
        (tmp_path / "evil/tokenizer_config.json").write_text(json.dumps(document))
        (tmp_path / "evil/tokenizer.json").unlink()
    tokenizer = "evil" if part == "tokenizer" else str(workshop.path / "tokenizer")
    data = {"parquet_paths": [str(workshop.path / "train.parquet")], "batch_size": 4}
    hyperparams = {"model": "evil", "tokenizer": tokenizer, "max_length": 32}
    job = {"trainer": "transformers", "device": "cpu", "max_steps": 1, "hyperparams": hyperparams, "dataset": data}
    (tmp_path / "job.json").write_text(json.dumps(job))
    first, *options = command
    process = hostcore(
        [first, "job.json", *options],
        imported=FRAMEWORK,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HOSTCORE_RUNS_DIR": "runs"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate("y\n" * 9, timeout=600)
    assert not list(tmp_path.rglob("it-ran"))
    assert process.returncode in {1, 2}, err
    assert "[y/N]" not in out + err
    assert "code of a model's folder is never run" in err
