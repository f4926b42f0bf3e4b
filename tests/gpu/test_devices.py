"""The device of a run. On the CPU a GPU is pretended, and the trainers of these tests do not compute on it."""

import json
import os
import signal
from typing import Any

from command_line import said_by


def test_auto_picks_the_gpu(place: Any) -> None:
    place.succeed("a", device="auto", **place.with_gpu())
    assert place.events("a")[0]["devices"] == ["cuda:0"]
    assert place.events("a", "run_started")[0]["device"] == "cuda:0"


def test_without_a_visible_gpu_auto_picks_the_cpu(place: Any) -> None:
    place.environment["CUDA_VISIBLE_DEVICES"] = ""
    place.succeed("a", device="auto")
    assert place.events("a")[0]["devices"] == ["cpu"]


def test_the_gpu_is_leased_to_one_run_after_the_other_or_shared_when_both_ask_for_it(place: Any) -> None:
    given = {"device": "auto", "max_steps": 5, **place.with_gpu()}
    if place.is_gpu:  # a machine may have more
        place.environment["CUDA_VISIBLE_DEVICES"] = "0"
    first = place.start("run", place.job("a", until="go", **given))
    place.wait_for("a.waits", first)
    refused = place.command("run", place.job("b", **given), "--json")
    assert refused.code == 2
    (error,) = refused.json["errors"]
    assert error["code"] == "device.busy"
    assert f"cuda:0 is held by run a (process {first.pid})" in error["message"]
    place.succeed("cpu", **{**given, "device": "cpu"})
    (place.path / "go").touch()
    assert said_by(first).code == 0
    place.succeed("b", **given)
    sharing = {**given, "share_devices": True}
    (place.path / "go").unlink()
    first = place.start("run", place.job("c", until="go", **sharing))
    place.wait_for("c.waits", first)
    place.succeed("d", **sharing)
    (place.path / "go").touch()
    assert said_by(first).code == 0
    assert place.events("d")[0]["devices"] == ["cuda:0"]


def test_two_ranks_on_one_gpu_are_refused_before_they_start(place: Any) -> None:
    given = place.with_gpu()
    if place.is_gpu:
        place.environment["CUDA_VISIBLE_DEVICES"] = "0"
    job = {**json.loads(place.job("a", **given).read_text()), "devices": ["cuda:0", "cuda:0"]}
    del job["device"]
    (place.path / "a.json").write_text(json.dumps(job))
    refused = place.command("run", "a.json", "--json")
    (error,) = refused.json["errors"]
    assert (refused.code, error["code"], error["pointer"]) == (2, "device.shared", "/devices")
    assert error["message"] == "2 ranks cannot share cuda:0"
    assert "a device of its own" in error["hint"]
    two = place.command("run", "a.json", "--devices", "auto:2")
    assert (two.code, "2 devices are asked for" in two.err) == (2, True), two
    assert not (place.path / "runs/a").exists()


def test_doctor_computes_on_the_device(place: Any) -> None:
    said = place.command("doctor", "--json")
    checks = {one["name"]: one for one in json.loads(said.out)["checks"]}
    found = checks["device.cuda:0" if place.is_gpu else "device.cpu"]
    assert found["status"] == "ok", found
    assert {one["status"] for one in found["details"]["products"].values()} == {"right"}


def test_a_trainer_of_another_program_runs_beside_the_device_s_own(place: Any, linear_job: Any) -> None:
    first = place.start("run", place.job("a", until="go"))
    place.wait_for("a.waits", first)
    said = place.command("run", linear_job(place.path))
    assert said.code == 0, said
    (place.path / "go").touch()
    assert said_by(first).code == 0


def test_the_memory_of_the_device_is_free_after_every_end(place: Any) -> None:
    before = place.memory()
    place.succeed("whole")
    place.require_free(before)
    for run_id, number, code in [("killed", signal.SIGKILL, 1), ("stopped", signal.SIGTERM, 75)]:
        # Many steps: the request to stop has to reach the worker before the last one.
        process = place.start("run", place.job(run_id, until=f"{run_id}.go", max_steps=100_000))
        worker = int(place.wait_for(f"{run_id}.waits", process).read_text())
        if place.is_gpu:
            assert place.memory() > before + 64, "the run has memory of the GPU"
        if number == signal.SIGKILL:
            os.kill(worker, number)
        else:
            process.send_signal(number)
            (place.path / f"{run_id}.go").touch()
        assert said_by(process).code == code
        place.require_free(before)
