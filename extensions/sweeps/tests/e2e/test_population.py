"""Population based training: trials begin from exact copies of the checkpoints of others."""

import json
from typing import Any

import orjson


def metrics(place: Any, run_id: str) -> dict[int, Any]:
    """The metrics of a run, by step."""
    lines = (place.path / "runs" / run_id / "logs" / "events.jsonl").read_bytes().splitlines()
    events = [orjson.loads(line) for line in lines]
    return {event["step"]: event["metrics"] for event in events if event["event"] == "metrics"}


def test_a_trial_goes_on_from_the_checkpoint_of_another_bit_for_bit(place: Any) -> None:
    place.sweep(sampler={"use": "pbt", "population": 2, "interval_steps": 5}, limits={"trials": 4, "parallel": 2})
    said = place.hostcore("sweep", "sweep.json")
    assert said.code == 0, said.err
    rows = place.status()["trials"]
    losses = [row["objective"]["train/loss"] for row in rows[:2]]
    best = losses.index(min(losses))
    assert [row["parent"] for row in rows] == [None, None, best, best]
    assert [row["step"] for row in rows] == [5, 5, 10, 10]

    own, copy = rows[2 + best], rows[3 - best]
    assert own["values"] == rows[best]["values"] != copy["values"]
    straight = {**json.loads((place.path / "job.json").read_text()), "run_id": "straight", "max_steps": 10}
    straight["hyperparams"] = {"lr": own["values"]["/hyperparams/lr"]}
    (place.path / "straight.json").write_text(json.dumps(straight))
    assert place.hostcore("run", "straight.json").code == 0
    whole = metrics(place, "straight")
    assert {**metrics(place, rows[best]["run_id"]), **metrics(place, own["run_id"])} == whole
    assert list(metrics(place, copy["run_id"])) == [6, 7, 8, 9, 10]
