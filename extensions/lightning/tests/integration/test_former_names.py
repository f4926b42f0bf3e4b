"""Modules that import ``pytorch_lightning`` and ``lightning_fabric``, the packages of those names installed."""

import json
import subprocess
import sys
from collections.abc import Callable

from lit_jobs import HERE, SEED
from lit_watch import Watch

BY_ITS_TRAINER = f"""
import json
import pytorch_lightning as pl
from lit_former import Former, FormerData

class Losses(pl.Callback):
    found = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.found.append(float(outputs["loss"]))

pl.seed_everything({SEED})
options = dict(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
pl.Trainer(callbacks=[Losses()], **options).fit(Former(), datamodule=FormerData())
print(json.dumps(Losses.found))
"""
#: With the former package in the process already, as in a notebook.
IMPORTED_BEFORE = """
import lit_former, hostcore
try:
    hostcore.run({"trainer": "lightning", "hyperparams": {"module": "lit_former:Former"}, "max_steps": 1})
except Exception as error:
    print(error)
"""


def printed(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_such_a_module_has_the_losses_of_its_own_trainer(by_hostcore: Callable[..., Watch]) -> None:
    hyperparams = {"module": "lit_former:Former", "datamodule": "lit_former:FormerData"}
    found = by_hostcore("Former", hyperparams=hyperparams, dataset=None)
    assert found.losses == json.loads(printed(BY_ITS_TRAINER).splitlines()[-1])


def test_a_former_package_that_was_imported_before_is_another_one() -> None:
    hint = "write `import lightning.pytorch as pl` in place of `import pytorch_lightning as pl`"
    assert hint in printed(IMPORTED_BEFORE)
