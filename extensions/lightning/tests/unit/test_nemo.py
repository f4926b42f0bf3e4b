"""The trainer ``nemo``: what a module in NeMo's style is given."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from hostcore_hookspecs import DataContext, ImportPath, InvalidData, InvalidSettings, StepContext
from hostcore_lightning.frameworks import NemoHyperparams, NemoTrainer


def written(**keys: Any) -> NemoHyperparams:
    return NemoHyperparams(**{"model_id": "tiny", "module": ImportPath("user_modules:Classifier"), **keys})


def cfg(**keys: Any) -> Any:
    return NemoTrainer().settings_of(written(**keys)).init["cfg"]


def test_the_configuration_is_of_the_file_and_the_job(tmp_path: Path) -> None:
    """What the job says wins; the section `model` of a file is what counts of it."""
    file = tmp_path / "gpt.yaml"
    file.write_text("trainer: {devices: 8}\nmodel: {layers: 2, hidden: 8, optim: {lr: 9.0, betas: [0.9, 0.95]}}\n")
    found = cfg(config_path=str(file), cfg={"hidden": 16, "optim": {"name": "adamw"}}, lr=0.01, warmup_steps=3)
    assert (found.layers, found.hidden, found.model_id, found["max_seq_len"]) == (2, 16, "tiny", 2048)
    assert (found.optim.lr, found.optim.betas, found.optim.name) == (0.01, [0.9, 0.95], "adamw")
    assert found.optim.sched.warmup_steps == 3
    assert "trainer" not in found


def test_omegaconf_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is beside NeMo, which asks for a DictConfig; it is not among what is installed for the tests."""
    module = types.ModuleType("omegaconf")
    module.OmegaConf = types.SimpleNamespace(create=lambda whole: ("DictConfig", whole))  # type: ignore[attr-defined]
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "omegaconf", module)
    kind, whole = cfg()
    assert kind == "DictConfig"
    assert whole["model_id"] == "tiny"


@pytest.mark.parametrize("content", [None, "- 1", "a: ["])
def test_a_file_that_is_no_configuration(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "gpt.yaml").write_text(content)
    with pytest.raises(InvalidSettings) as caught:
        cfg(config_path=str(tmp_path / "gpt.yaml"))
    assert caught.value.pointer == "/config_path"


def test_rows_are_texts_and_numbers() -> None:
    ctx = StepContext(hyperparams=written(dataset_text_field="body"))
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"], "weight": [1.0, 2.0], "of": ["x", None]})
    found = NemoTrainer().transform_batch(batch, np.random.default_rng(0), ctx)
    assert (found["body"], found["of"]) == (["a", "b"], ["x", None])
    assert torch.equal(found["weight"], torch.tensor([1.0, 2.0], dtype=torch.float64))
    with pytest.raises(InvalidData, match="no column 'text'"):
        NemoTrainer().transform_batch(batch, np.random.default_rng(0), StepContext(hyperparams=written()))


def test_the_data_is_that_of_the_job() -> None:
    assert NemoTrainer().data_sections(written(), DataContext()) is None


def test_a_module_that_takes_no_configuration() -> None:
    with pytest.raises(InvalidSettings, match="cannot be made of this") as caught:
        NemoTrainer().configure(StepContext(hyperparams=written()))
    assert caught.value.pointer == "/cfg"


def test_a_module_reads_its_configuration_by_attributes() -> None:
    hyperparams = written(module=ImportPath("user_modules:InNemosStyle"), lr=0.25)
    state = NemoTrainer().configure(StepContext(hyperparams=hyperparams))
    assert state.module.rate == 0.25
