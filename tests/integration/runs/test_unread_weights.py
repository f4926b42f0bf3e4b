"""Initial weights that a trainer does not read."""

import pytest

READS = """
from small_trainer import Trainer

class Reads(Trainer):
    def configure(self, ctx):
        assert "weights" in ctx.model_handles
        open(ctx.model_handles["weights"]).close()
        return super().configure(ctx)
"""


@pytest.mark.parametrize(("trainer", "warns"), [("small_trainer:Trainer", True), ("reading:Reads", False)])
def test_are_a_warning(project, trainer: str, warns: bool) -> None:
    (project.path / "reading.py").write_text(READS)
    (project.path / "weights.bin").write_bytes(b"")
    name = trainer.partition(":")[0]
    job = project.job(f"{name}.json", run_id=name, trainer=trainer, max_steps=2)
    assert project.command("run", str(job), "--weights", str(project.path / "weights.bin")).code == 0
    warnings = [one for one in project.run(name).events if one["event"] == "warning"]
    assert any(one["code"] == "weights.unread" for one in warnings) == warns
