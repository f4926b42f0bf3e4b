"""Models and tokenizers that do not fit each other, or the job."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers_workshop import BERT, GPT2, LLAMA, save_tokenizer

from hostcore_hookspecs import InvalidData, InvalidSettings, Job, RunState, SampleRequest, StepContext
from hostcore_transformers import trainer as of_trainer
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loading import build_model
from hostcore_transformers.tasks import load_task
from hostcore_transformers.trainer import TransformersTrainer

ROBERTA = {**BERT, "model_type": "roberta", "pad_token_id": 1}


def built(tokenizer_folder: Path, config: Any, **settings: Any) -> Any:
    hyperparams = Hyperparams(config=config, **{"max_length": 32, "tokenizer": tokenizer_folder, **settings})
    return build_model(hyperparams, load_task(hyperparams, {}), StepContext())


@pytest.mark.parametrize(
    ("config", "task", "longest"),
    [(GPT2, "causal-lm", 128), (LLAMA, "causal-lm", 128), (BERT, "masked-lm", 128), (ROBERTA, "masked-lm", 126)],
)
def test_texts_longer_than_a_model_takes_are_refused(
    tokenizer_folder: Path, config: Any, task: str, longest: int
) -> None:
    ids = torch.full((1, longest), 5)
    model = built(tokenizer_folder, config, task=task, max_length=longest)
    assert model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.shape == (1, longest, 320)
    with pytest.raises(InvalidSettings, match=f"takes {longest} tokens") as refused:
        built(tokenizer_folder, config, task=task, max_length=longest + 1)
    assert refused.value.pointer == "/max_length"


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "owner/repo"},
        {"_attn_implementation": "owner/repo@main:forward"},
        {"attn_implementation": {"": "paged|owner/repo"}},
        {"attn_implementation": "flash_attention_2"},  # a kernel of the Hub where the package is missing
        {"experts_implementation": "sonicmoe"},
        {"text_config": {"attn_implementation": "owner/repo"}},
        {"quantization_config": {"quant_method": "eetq"}},
        {"use_kernels": True},
    ],
)
@pytest.mark.parametrize("where", ["config", "folder"])
def test_a_configuration_that_loads_code_is_refused(
    tokenizer_folder: Path, tmp_path: Path, settings: Any, where: str
) -> None:
    given: dict[str, Any] = {"config": {**LLAMA, **settings}}
    if where == "folder":
        (tmp_path / "config.json").write_text(json.dumps(given["config"]))
        given = {"config": {}, "model": tmp_path}
    with pytest.raises(InvalidSettings, match="code of the installed transformers alone") as refused:
        built(tokenizer_folder, **given)
    assert refused.value.pointer.startswith("/config/" if where == "config" else "/model")
    model = built(tokenizer_folder, {**LLAMA, "attn_implementation": "eager", "quantization_config": None})
    assert model.config._attn_implementation == "eager", "attention that transformers has itself is taken"


def test_an_adapter_in_the_models_folder_is_refused(tokenizer_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "adapter_config.json").write_text('{"megatron_core": "any_module"}')
    with pytest.raises(InvalidSettings, match="has an adapter beside the model"):
        built(tokenizer_folder, {}, model=tmp_path)


def test_weights_of_other_names_are_refused_and_those_that_are_missing_are_named(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    """With a warning in transformers' log alone, a model of new weights would be trained in place of the folder's."""
    built(tokenizer_folder, LLAMA).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(
        {f"module.{name}": one for name, one in weights.items()}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(InvalidSettings, match="none of the 20 tensors of LlamaForCausalLM is in"):
        built(tokenizer_folder, {}, model=tmp_path)
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match=r"1 of 20 tensors of LlamaForCausalLM are not in .*: model\.norm\.weight"):
        built(tokenizer_folder, {}, model=tmp_path)


def test_a_classifier_pads_with_the_token_that_batches_are_padded_with(tokenizer_folder: Path) -> None:
    config = {**LLAMA, "pad_token_id": 5}
    model = built(tokenizer_folder, config, task="sequence-classification", num_labels=3)
    assert model.config.pad_token_id == AutoTokenizer.from_pretrained(tokenizer_folder).pad_token_id
    assert model.config.problem_type == "single_label_classification"


def test_on_several_ranks_the_model_is_given_to_parallelize_from_the_cpu(
    tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole on each device, a model would have to fit into it; ``fully_shard`` moves one block after the other."""
    devices = []

    def parallelize(model: Any, *_: Any, **__: Any) -> Any:
        devices.extend(one.device.type for one in model.parameters())
        return model

    monkeypatch.setattr(of_trainer, "parallelize", parallelize)
    hyperparams = Hyperparams(config=LLAMA, tokenizer=tokenizer_folder, max_length=32, strategy="fsdp2")
    several = StepContext(hyperparams=hyperparams, device="meta", world_size=2, run_state=RunState(total_steps=1))
    TransformersTrainer().configure(several)
    assert set(devices) == {"cpu"}


def test_a_sample_that_has_nothing_to_begin_with_is_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, pad_token="<pad>")
    trainer = TransformersTrainer()
    ctx = StepContext(
        job=Job(max_steps=1),
        hyperparams=Hyperparams(config=LLAMA, tokenizer=tmp_path, max_length=32),
        run_state=RunState(total_steps=1),
    )
    state = trainer.configure(ctx)
    with pytest.raises(InvalidData, match="begins with the token that begins or ends a text; there is none"):
        trainer.generate_sample(state, SampleRequest(), str(tmp_path), ctx)
