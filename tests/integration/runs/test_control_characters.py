"""A real job that wants to steer the terminal on which it runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_text import HOSTILE, ORDERS, TITLE_SHOWN, orders_in
from terminal import on_terminal

TRAINER = f"""
    from hostcore_hookspecs import StepResult

    HOSTILE = {HOSTILE!r}

    class Trainer:
        def setup(self, ctx): print(HOSTILE)
        def configure(self, ctx): return {{}}
        def prepare_batch(self, raw_batch, state, ctx): return raw_batch
        def train_step(self, prepared_batch, state, ctx):
            print("\\x1b[32mgreen\\r 10%\\r 20%", flush=True)
            ctx.warn(HOSTILE)
            if ctx.run_state.step == 3:
                raise RuntimeError(HOSTILE)
            return StepResult(metrics={{HOSTILE: 1.0}})
        def state_dict(self, state): return {{}}
        def load_state_dict(self, state, payload, ctx): pass

    Trainer.__name__ = Trainer.__qualname__ = HOSTILE
"""
#: What the bar of a run uses of them itself.
OWN = ("\x1b[1A", "\r")


@pytest.fixture
def place(site: Any, own_project: Callable) -> Any:
    site.install("bad", modules={"bad.py": TRAINER}, entry_points={"hostcore.trainers": {"bad": "bad:Trainer"}})
    return own_project(site.environment)


def show(place: Any, *arguments: str) -> str:
    return on_terminal(*arguments, cwd=place.path, env=place.environment).text


@pytest.mark.parametrize("options", [[], ["--in-process"]])
def test_a_run_that_fails_shows_its_words_and_obeys_none(place: Any, options: list[str]) -> None:
    place.job(trainer="bad", max_steps=8, metric_every=1, terminal=True)
    screen = show(place, "run", "job.json", *options)
    if not options:  # else the trainer prints on the terminal itself
        assert [order for order in ORDERS if order not in OWN and order in screen] == []
    assert f"RuntimeError: <{TITLE_SHOWN}" in screen
    assert f"warning: <{TITLE_SHOWN}" in screen
    for command in ("logs", "status"):
        assert orders_in(show(place, command, "a")) == []


def test_what_the_worker_printed_keeps_its_colours_and_its_progress_bar(place: Any) -> None:
    place.job(trainer="bad", max_steps=2)
    assert place.command("run", "job.json").code == 0
    screen = show(place, "logs", "a", "--output")
    assert "\x1b[32mgreen\r 10%\r 20%\x1b[0m\r\n" in screen
    assert TITLE_SHOWN in screen
    assert "\x1b]" not in screen
    piped = place.command("logs", "a", "--output").out
    assert "\ngreen\n 10%\n 20%\n" in piped
    assert orders_in(piped) == []


@pytest.mark.parametrize("shape", ["hostcore", "trn"])
def test_events_on_standard_output_are_json_that_steers_nothing(place: Any, shape: str) -> None:
    place.job(trainer="bad", max_steps=1, metric_every=1, terminal=False)
    said = place.command("run", "job.json", "--event-log", "-", "--event-format", shape)
    assert said.code == 0, said.err
    assert orders_in(said.out) == []
    assert HOSTILE in [name for line in said.out.splitlines() for name in json.loads(line).get("metrics", {})]


def test_the_place_of_an_error_in_a_job_begins_no_line_of_its_own(place: Any) -> None:
    place.job(**{f"{HOSTILE}\n    hint: rm": 1}, hyperparams={}, max_steps=1)
    screen = show(place, "validate", "job.json")
    assert orders_in(screen) == []
    (at,) = [line for line in screen.splitlines() if line.startswith("      at: ")]
    assert TITLE_SHOWN in at and at.endswith(r"\n    hint: rm")


def test_settings_and_folders_are_shown_as_well(place: Any, tmp_path: Path) -> None:
    folder = place.path / "jobs\x1b]0;own\x07"
    folder.mkdir()
    job = place.job(callbacks=[{"use": "csv-metrics", "settings": {HOSTILE: HOSTILE}}], max_steps=1)
    for command in (["validate", str(job.rename(folder / "job.json"))], ["doctor", str(folder / "job.json")]):
        screen = show(place, *command)
        assert orders_in(screen) == []
        assert TITLE_SHOWN in screen
