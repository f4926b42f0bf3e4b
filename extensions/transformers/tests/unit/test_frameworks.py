"""``hf`` and ``meta``: the settings of the unified trainer API, in the words of the trainer ``transformers``."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers_workshop import BERT, GPT2, LLAMA

from hostcore_hookspecs import InvalidSettings, StepContext
from hostcore_transformers.frameworks import HfHyperparams, HfTrainer, MetaHyperparams, MetaTrainer


def model(folder: Path, config: Any) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_names_are_translated_and_the_length_is_what_the_model_takes(tmp_path: Path) -> None:
    written = HfHyperparams(model_id=model(tmp_path, GPT2), dataset_text_field="body", lr=1e-3)
    found = HfTrainer().settings(StepContext(hyperparams=written))
    assert found.model == tmp_path
    assert (found.text_column, found.learning_rate, found.max_length) == ("body", 1e-3, 128)
    assert found.tokenizer is None


def test_an_input_of_the_job_is_the_model_and_the_name_is_only_a_name(tmp_path: Path) -> None:
    handles = {"model": model(tmp_path, LLAMA)}
    found = MetaTrainer().settings(StepContext(hyperparams=MetaHyperparams(model_id="any/name"), model_handles=handles))
    assert found.model == tmp_path
    assert found.learning_rate == 2e-5


@pytest.mark.parametrize(
    ("trainer", "hyperparams", "config", "keys", "message", "pointer"),
    [
        (MetaTrainer, MetaHyperparams, BERT, {}, "model of type 'bert', and this framework takes llama", "/model_id"),
        (HfTrainer, HfHyperparams, LLAMA, {"max_seq_len": 129}, "takes 128 tokens", "/max_seq_len"),
        (HfTrainer, HfHyperparams, LLAMA, {"tokenizer_name": ""}, r"no tokenizer_config\.json", "/tokenizer_name"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_the_job(
    tmp_path: Path, trainer: Any, hyperparams: Any, config: Any, keys: Any, message: str, pointer: str
) -> None:
    given = {name: value or str(tmp_path) for name, value in keys.items()}
    written = hyperparams(model_id=model(tmp_path, config), **given)
    with pytest.raises(InvalidSettings, match=message) as refused:
        trainer().setup(StepContext(hyperparams=written))
    assert refused.value.pointer == pointer
