import sys

import pytest
import torch

from hostcore_hookspecs import InvalidSettings, StepContext
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.optimizers import make_optimizer


@pytest.mark.parametrize("name", ["lion", "adamw_8bit"])
def test_a_missing_library_is_an_error_with_a_way_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    hyperparams = Hyperparams(model="somewhere", optimizer=name)
    with pytest.raises(InvalidSettings, match=f'"{name}" needs bitsandbytes, which is not installed') as caught:
        make_optimizer(torch.nn.Linear(2, 2), hyperparams, StepContext())
    assert (caught.value.pointer, "pip install" in str(caught.value.hint)) == ("/optimizer", True)
