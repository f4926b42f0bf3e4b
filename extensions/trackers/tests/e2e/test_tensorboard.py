"""The reporter tensorboard, and TensorBoard's own server, in both of its ways to load."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3
from waiting import wait_until

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Metrics, RunResumed, RunStarted, RunSubmitted, RunSucceeded, Warning
from hostcore_trackers.tensorboard import TensorBoardReporter


def ask(url: str, page: str, **query: str) -> Any:
    answer = urllib3.request("GET", f"{url}/data/plugin/{page}?{urlencode(query)}", timeout=300)
    return json.loads(answer.data) if answer.status == 200 else None


@pytest.mark.parametrize("fast", [True, False], ids=["data-server", "python"])
def test_the_server_shows_a_resumed_run_as_one_curve(
    fast: bool, course: Callable[..., Any], tensorboard: Callable[..., Any]
) -> None:
    run = course()

    def begin(step: int) -> list[Event]:
        return [run.tell(RunSubmitted(trainer="flights", max_steps=9)), run.tell(RunStarted(device="cpu"), step=step)]

    def steps(*steps: int, add: float = 0) -> list[Event]:
        return [run.tell(Metrics(metrics={"train/loss": step + add}), step=step) for step in steps]

    told = [*begin(0), *steps(10, 20, 30), run.tell(Warning(code="a", message="taken back"), step=30)]
    run.report(TensorBoardReporter(), told)
    run.attempt = 2
    more = [run.tell(RunResumed(path="checkpoints/step-000010"), step=10), *begin(10), *steps(20, 30, add=0.5)]
    more += [run.tell(Warning(code="a", message="kept"), step=30), run.tell(RunSucceeded(), step=40)]
    run.report(TensorBoardReporter(), [*told[-2:], *more])

    with tensorboard(run.run_dir.parent, fast=fast) as url:
        where = {"run": "run/tensorboard", "tag": "train/loss"}

        def curve() -> list[tuple[int, float]]:
            return [(step, value) for _, step, value in ask(url, "scalars/scalars", **where) or ()]

        def texts() -> list[str]:
            return [one["text"] for one in ask(url, "text/text", run="run/tensorboard", tag="events") or ()]

        # It loads the files of both attempts one after the other, and shows what it has meanwhile.
        wait_until(lambda: any("kept" in text for text in texts()), "the events")
        wait_until(lambda: curve()[-1:] == [(30, 30.5)], "the curve")
        shown, told = curve(), texts()
        job = wait_until(lambda: ask(url, "text/text", run="run/tensorboard", tag="job"), "the job")
    assert shown == [(10, 10), (20, 20.5), (30, 30.5)]
    assert not any("taken back" in text for text in told)
    assert "flights" in job[0]["text"]
