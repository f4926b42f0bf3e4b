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


def test_meta_refuses_other_architectures(tmp_path: Path) -> None:
    written = MetaHyperparams(model_id=model(tmp_path, BERT))
    with pytest.raises(InvalidSettings, match="model of type 'bert', and this framework takes llama"):
        MetaTrainer().settings(StepContext(hyperparams=written))


def test_a_text_longer_than_the_model_takes_is_refused_in_the_words_of_the_job(tmp_path: Path) -> None:
    written = HfHyperparams(model_id=model(tmp_path, LLAMA), max_seq_len=129)
    with pytest.raises(InvalidSettings, match="takes 128 tokens") as refused:
        HfTrainer().settings(StepContext(hyperparams=written))
    assert refused.value.pointer == "/max_seq_len"


def test_a_tokenizer_that_is_missing_is_told_in_the_words_of_the_job(tmp_path: Path) -> None:
    written = HfHyperparams(model_id=model(tmp_path, LLAMA), tokenizer_name=str(tmp_path))
    with pytest.raises(InvalidSettings, match=r"no tokenizer_config\.json") as refused:
        HfTrainer().setup(StepContext(hyperparams=written))
    assert refused.value.pointer == "/tokenizer_name"
