"""Packed texts: the loss and the gradients are those of the same texts, each alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers_steps import BART, configured
from transformers_workshop import GPT2, LLAMA, MIXTRAL, texts

from hostcore_hookspecs import InvalidSettings

WEIGHTS = {"initializer_range": 0.3}  # texts that read each other would be far off
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OF_QWEN = {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen3": {"model_type": "qwen3", "vocab_size": 320, **SIZES, **OF_QWEN},
    "gpt2": GPT2,
    "mixtral": {**MIXTRAL, "output_router_logits": False},  # its router's loss is a mean over the padding, too
    # Of the positions, transformers makes no mask in these: it is made for them.
    "opt": {
        "model_type": "opt", "vocab_size": 320, "ffn_dim": 64, "max_position_embeddings": 128, "dropout": 0.0,
        "word_embed_proj_dim": 32, **SIZES,
    },
    "gpt-oss": {
        "model_type": "gpt_oss", "vocab_size": 320, **SIZES, **OF_QWEN, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 4, "output_router_logits": False,
    },
    # Windows that are shorter than the texts.
    "gemma3": {"model_type": "gemma3_text", "vocab_size": 320, **SIZES, **OF_QWEN, "sliding_window": 4},
}  # fmt: skip
CHAT = [
    [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
    for one, other in zip(texts(12), reversed(texts(12)), strict=True)
]


def step(tokenizer: Path, config: Any, **settings: Any) -> tuple[dict[str, float], tuple[int, ...]]:
    """Loss and norm of the gradients of a step on twelve rows, and the shape of its batch."""
    settings = {"max_length": 48, "config": {**config, **WEIGHTS}, "router_loss": None, **settings}
    precision = settings.pop("precision", "fp32")
    trainer, state, ctx = configured(tokenizer, settings, precision=precision)
    rows = pa.RecordBatch.from_pydict({"text": texts(12), "messages": CHAT})
    batch = trainer.prepare_batch(trainer.transform_batch(rows, np.random.default_rng(0), ctx), state, ctx)
    found = trainer.train_step(batch, state, ctx).metrics
    return {name: float(found[name]) for name in ("loss", "grad_norm")}, tuple(batch.labels.shape)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model", MODELS)
def test_a_step_on_packed_texts_is_the_step_on_the_texts(tokenizer_folder: Path, model: str, attention: str) -> None:
    if (model, attention) == ("gpt-oss", "sdpa"):
        pytest.skip("transformers has no sdpa for it")
    settings = {"attention": attention}
    padded, of_padded = step(tokenizer_folder, MODELS[model], **settings)
    packed, of_packed = step(tokenizer_folder, MODELS[model], packing="texts", **settings)
    assert packed == pytest.approx(padded, rel=1e-4)
    assert of_padded[0] == 12
    assert of_packed[0] < 6
    assert of_packed[1] <= 48


def test_answers_of_packed_conversations_are_those_of_each_alone(tokenizer_folder: Path) -> None:
    settings = {"messages_column": "messages", "learn_from": "answers", "max_length": 96}
    padded, _ = step(tokenizer_folder, LLAMA, **settings)
    packed, _ = step(tokenizer_folder, LLAMA, packing="texts", **settings)
    assert packed == pytest.approx(padded, rel=1e-4)


QWEN_3_5 = {"model_type": "qwen3_5_text", "vocab_size": 320, **SIZES, **OF_QWEN, "num_hidden_layers": 4}


@pytest.mark.parametrize("config", [BART, QWEN_3_5], ids=["absolute positions", "states that go on"])
def test_a_model_in_which_texts_would_read_each_other_is_refused(tokenizer_folder: Path, config: Any) -> None:
    with pytest.raises(InvalidSettings, match="something else of packed texts than of each alone") as refused:
        step(tokenizer_folder, config, packing="texts")
    assert refused.value.pointer == "/packing"
    step(tokenizer_folder, config, packing=True, max_length=16)  # the way out
