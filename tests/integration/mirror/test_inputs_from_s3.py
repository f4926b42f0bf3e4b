"""Inputs and weights on S3 reach the trainer as local paths."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.supervisor.remote.inputs import fetch_inputs


@pytest.fixture
def fetch(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))

    def fetch(**inputs: Any) -> dict[str, Path]:
        spec = load_job({"trainer": "x:Y", "max_steps": 1, "inputs": inputs})
        return {name: Path(path) for name, path in fetch_inputs(spec, (), told.append).items()}

    told: list[str] = []
    fetch.told = told
    return fetch


def test_a_folder_of_a_hundred_objects_comes_whole(s3: Any, fetch: Any) -> None:
    content = {f"part {number:03} ü.txt": str(number).encode() for number in range(100)}
    for name, one in content.items():
        s3.put(f"models/bert base/{name}", one)
    s3.put("models/bert base/", b"")  # what some tools leave for a folder
    s3.put("models/bert base 2/another", b"x")
    folder = fetch(model=s3.uri("models/bert base/"))["model"]
    assert folder.name == "bert base"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


def test_the_endpoint_may_stand_in_the_storage_options(s3: Any, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("w.bin", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    options = {"client_kwargs": {"endpoint_url": s3.endpoint}}
    assert fetch(m={"uri": s3.uri("w.bin"), "storage_options": options})["m"].read_bytes() == b"x"


def test_a_missing_object_and_a_missing_bucket_are_told_at_once(s3: Any, fetch: Any) -> None:
    with pytest.raises(Errors) as caught:
        fetch(a=s3.uri("nothing"), b="s3://no-such-bucket-at-all/x")
    assert [(error.pointer, error.code) for error in caught.value.errors] == [
        ("/inputs/a", "store.missing"),
        ("/inputs/b", "store.missing"),
    ]


def test_the_trainer_finds_inputs_and_weights_as_local_paths(machine: Any, s3: Any) -> None:
    s3.put("hub/base/config.json", b"{}")
    s3.put("hub/weights 1.bin", b"heavy")
    here = machine("here")
    (here.path / "words.txt").write_text("words")
    inputs = {"base_model": s3.uri("hub/base"), "words": "./words.txt"}
    job = here.job(
        trainer="node_trainer:Trainer", max_steps=1, run_id="a", weights=s3.uri("hub/weights 1.bin"), inputs=inputs
    )
    done = here.hostcore("run", job)
    assert done.code == 0, done.err
    output = (here.run("a") / "logs" / "rank-0.attempt-1.log").read_text()
    for name, found in (("base_model", "'{}', in /"), ("weights", "'heavy', in /"), ("words", "'words', in /")):
        assert f"{name} is {found}" in output


def test_an_input_that_is_not_there_makes_the_job_invalid_and_leaves_nothing(machine: Any, s3: Any) -> None:
    here = machine("here")
    job = here.job(trainer="node_trainer:Trainer", max_steps=1, run_id="a", inputs={"m": s3.uri("nothing")})
    for command in ("run", "validate"):
        done = here.hostcore(command, job, "--json")
        assert done.code == 2
        (error,) = done.json["errors"]
        assert (error["code"], error["pointer"]) == ("store.missing", "/inputs/m")
    assert not (here.path / "runs").exists()
