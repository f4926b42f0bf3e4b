"""A trainer that fails while it trains: a failed run, with the trainer's own traceback."""

import json
from typing import Any

import pytest

TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self): return {"step": 0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, prepared_batch, state):
        state["step"] += 1
        return StepResult(metrics={"loss": divided(state["step"])})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)

def divided(step):
    return 1 / (137 - step)
"""
JOB = {
    "trainer": "mine:Trainer",
    "run_id": "fails",
    "max_steps": 1000,
    "metric_every": 0,
    "checkpoint_every": 100,
    "terminal": False,
}


@pytest.mark.parametrize("where", [[], ["--in-process"]], ids=["in a worker", "in process"])
def test_a_trainer_that_raises_in_step_137_shows_its_own_traceback(workplace: Any, where: list[str]) -> None:
    workplace.write(TRAINER, "mine.py")
    workplace.write(JOB)
    answer = workplace.hostcore("run", "job.json", *where)
    assert answer.code == 1
    traceback, _, error = answer.err.partition("error: ")
    assert traceback.startswith("Traceback (most recent call last):\n")
    frames = [line.split(", line ")[1] for line in traceback.splitlines() if line.startswith("  File ")]
    assert frames == ["10, in train_step", "15, in divided"]
    assert f'File "{workplace.folder / "mine.py"}"' in traceback
    assert traceback.endswith("ZeroDivisionError: division by zero\n")
    assert error == "ZeroDivisionError: division by zero (in mine:Trainer)\n"
    assert "failed  fails" in answer.out

    result = json.loads((workplace.runs / "fails/result.json").read_text())
    assert (result["status"], result["exit_code"], result["step"]) == ("failed", 1, 136)
    assert result["final_checkpoint"] == "checkpoints/step-000100"
    assert result["error"] == {
        "type": "ZeroDivisionError",
        "message": "division by zero",
        "traceback": traceback,
        "plugin": "mine:Trainer",
        "rank": 0,
        "hint": None,
    }
    events = [json.loads(line) for line in (workplace.runs / "fails/logs/events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("run_failed") == 1
    assert events[-1]["event"] == "run_failed"
    assert events[-1]["error"] == result["error"]


def test_a_failed_run_is_one_json_document_for_programs(workplace: Any) -> None:
    workplace.write(TRAINER, "mine.py")
    workplace.write(JOB)
    answer = workplace.hostcore("run", "job.json", "--json")
    assert (answer.code, answer.err) == (1, "")
    assert json.loads(answer.out) == json.loads((workplace.runs / "fails/result.json").read_text())


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        ('return {"step": 0}', "pass", "configure returned None; the other methods get what it returns as `state`"),
        (
            'divided(state["step"])',
            "__import__('torch').nn.Linear(1, 1)(__import__('torch').ones(1, dtype=__import__('torch').float64))",
            "float64 columns are double tensors, and weights are float32: convert the batch in prepare_batch",
        ),
        ("return StepResult(metrics=", "return dict(loss=", "return hostcore_hookspecs.StepResult(metrics="),
    ],
)
def test_a_frequent_slip_of_a_first_trainer_has_a_hint(workplace: Any, before: str, after: str, hint: str) -> None:
    assert before in TRAINER
    workplace.write(TRAINER.replace(before, after), "mine.py")
    workplace.write(JOB)
    answer = workplace.hostcore("run", "job.json", "--in-process")
    assert answer.code == 1
    assert f"    hint: {hint}" in answer.err
