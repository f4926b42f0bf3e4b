"""A service lets in what SECURITY.md says, with and without an operator's file: rows for each sentence.

Every attack and spelling is in ``unit/guard``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

Client = Callable[..., TestClient]
CHAOS = {"callbacks": [{"use": "Hostcore.Chaos/chaos", "faults": ["kill@step=1"]}]}
COMMAND: dict[str, Any] = {"trainer": "process", "hyperparams": {"command": ["true"]}}
#: One program, as jobs may spell it.
SPELLINGS = [
    *("process", "hostcore-builtin-plugins/process", "hostcore_builtin_plugins/process", "lightning", "nemo"),
    *("HOSTCORE-BUILTIN-PLUGINS/process", "Hostcore_Builtin.Plugins/process", "hostcore-_.builtin-plugins/process"),
    *("process ", " process", "process\n", "Process", "proce\u017fs", "process\0", "hostcore-builtin-plugins/ process"),
    "HOSTCORE-LIGHTNING/lightning",
]


NAMES = {
    "env": ["A_*"],
    "secrets": ["env:HF_TOKEN"],
    "images": ["mine/*"],
    "requirements": ["numpy"],
    "labels": ["team"],
}
FOLDERS = {"data_roots": ["HERE/data"], "checkpoint_roots": ["HERE/runs"], "hosts": ["example.com"]}
EVERYTHING = {"env": ["*"], "hosts": ["*"], "data_roots": ["/srv"], "import_paths": True, "interpreters": ["*"]}
TORCHRUN = {"launchers": {"torchrun": {"hosts": ["localhost"]}}}
#: A job of everything that is closed, and where it is refused.
CLOSED: dict[str, Any] = {
    "hyperparams": {"token": {"$secret": "env:HOME"}},
    "environment": {"lock": "pylock.toml", "requirements": ["numpy"], "interpreter": "/usr/bin/python3"},
    "resources": {"env": {"A": "1"}, "image": "a/b"},
}
ARE_CLOSED = ["/resources/image", "/environment/lock", "/environment/interpreter", "/environment/requirements/0"]
ARE_CLOSED += ["/resources/env/A", "/hyperparams/token"]
LET_IN: dict[str, Any] = {
    "environment": {"requirements": ["numpy>=1"]},
    "resources": {"env": {"A_B": "1"}, "image": "mine/a"},
    "labels": {"team": "a"},
}
Row = tuple[dict[str, Any], list[str]]
#: The number of a sentence and the operator's file; then jobs, each with the places that are refused.
SENTENCES: list[tuple[int, dict[str, Any], list[Row]]] = [
    (
        1,
        {},
        [
            ({}, []),
            ({"trainer": "here:Trainer"}, ["/trainer"]),
            ({"dataset": {"source": "os:path"}}, ["/dataset/source"]),
        ],
    ),
    (1, {}, [({"import_paths": value}, ["/import_paths"]) for value in (True, ["tiny-trainer/tiny"])]),
    (3, {}, [(CHAOS, ["/callbacks/0"])]),
    (4, {}, [({"checkpoint_base_uri": "s3://bucket/runs", "weights": "s3://bucket/w"}, [])]),
    (4, {}, [({"weights": place}, ["/weights"]) for place in ("/etc/passwd", "http://example.com/x", "data/x")]),
    (4, {}, [({"hyperparams": {"data": "s3://bucket/x"}}, ["/hyperparams/data"])]),
    (5, {}, [(CLOSED, ARE_CLOSED)]),
    (6, {"launcher": "local"}, [({"launcher": "local"}, []), ({"launcher": "slurm"}, ["/launcher"])]),
    (6, {"launcher": "local"}, [({"launcher": {"use": "local", "log": "x"}}, ["/launcher/log"])]),
    (7, {}, [({"owner": "ada\x1b[2J"}, ["/owner"]), ({"owner": "ada\r\neve"}, ["/owner"])]),
    (9, {"http": {"plugins": ["Tiny_Trainer/*", "hostcore-*/*", "told-launchers/*"]}}, [({}, [])]),
    (9, {"http": {"plugins": ["other"]}}, [({}, ["/trainer"])]),
    (
        9,
        {"http": {"plugins": ["*", "hostcore-builtin-plugins/process"]}},
        [(COMMAND, []), ({"trainer": "nemo"}, ["/trainer"])],
    ),
    (9, {"http": {"import_paths": True}}, [(COMMAND, []), ({"trainer": "here:Trainer"}, [])]),
    (10, {"http": {"chaos": True}}, [(CHAOS, [])]),
    (11, {"http": FOLDERS}, [({"weights": "HERE/data/w", "checkpoint_base_uri": "HERE/runs"}, [])]),
    (
        11,
        {"http": FOLDERS},
        [({"checkpoint_base_uri": "HERE/data"}, ["/checkpoint_base_uri"]), ({"weights": "HERE"}, ["/weights"])],
    ),
    (12, {"http": NAMES}, [(LET_IN, []), (CLOSED, [*ARE_CLOSED[:3], "/resources/env/A", "/hyperparams/token"])]),
    (12, {"http": NAMES}, [({"labels": {"x": "a"}}, ["/labels/x"])]),
    (13, TORCHRUN, [({"launcher": "torchrun"}, [])]),
    (13, TORCHRUN, [({"launcher": {"use": "torchrun", "hosts": ["evil"]}}, ["/launcher/hosts/0"])]),
    (15, {"http": EVERYTHING}, [({"resources": {"env": {"LD_PRELOAD": "x"}}}, ["/resources/env/LD_PRELOAD"])]),
    (15, {"http": EVERYTHING}, [({"weights": "/srv/../etc/passwd"}, ["/weights"])]),
    (15, {"http": EVERYTHING}, [({"environment": {"lock": "pylock.toml"}}, ["/environment/lock"])]),
    (15, {"http": EVERYTHING}, [({"weights": "http://169.254.169.254/latest"}, ["/weights"])]),
]


def here(value: Any, folder: Path) -> Any:
    """Return a value with a folder of the test for ``HERE``."""
    if isinstance(value, dict):
        return {key: here(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [here(item, folder) for item in value]
    return value.replace("HERE", str(folder)) if isinstance(value, str) else value


def test_a_job_is_let_in_as_the_sentences_say(client: Client, tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for sections, group in itertools.groupby(SENTENCES, lambda sentence: sentence[1]):
        service = client(**here(sections, tmp_path))
        for number, keys, pointers in [(number, *row) for number, _, rows in group for row in rows]:
            answer = service.post("/v1/jobs", json=tiny(**here(keys, tmp_path)))
            assert answer.status_code == (400 if pointers else 201), (number, keys, answer.text)
            found = [one["pointer"] for one in answer.json().get("errors", [])]
            assert sorted(found) == sorted(pointers), (number, keys)


def test_2_no_plugin_that_runs_code_of_the_job_s_choice_by_any_door_or_spelling(client: Client, tiny: Any) -> None:
    service = client()
    mapped = {"checkpoint_base_uri": "s3://bucket/runs", "model_id": "m", "dataset_uri": "s3://bucket/x.parquet"}
    for number, trainer in enumerate(SPELLINGS):
        for path in ("/v1/jobs", "/v1/jobs:validate"):
            answer = service.post(path, json={**tiny(**COMMAND), "trainer": trainer})
            assert "/trainer" in [one["pointer"] for one in answer.json()["errors"]], (path, trainer)
        request = {"framework": trainer, "run_id": f"r{number}", **mapped, "extra_args": COMMAND["hyperparams"]}
        assert service.post("/train", json=request).status_code == 400, trainer
    for nested in ({"include": ["/etc/passwd"]}, {"job": COMMAND}, {"trainer": {"use": "process"}}):
        assert service.post("/v1/jobs", json=tiny(**nested)).status_code in (400, 403), nested
    assert service.get("/v1/jobs").json()["jobs"] == []


def test_14_policies_are_asked_and_a_job_only_adds(client: Client, tiny: Any) -> None:
    service = client(policies=[{"use": "allow-list", "trainers": ["Other.Dist/tiny"]}])
    for policies in ([], [{"use": "allow-list", "trainers": ["*"]}]):
        answer = service.post("/v1/jobs", json=tiny(policies=policies))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "policy.denied")
    listed = client(policies=[{"use": "allow-list", "trainers": ["Tiny.Trainer/tiny"]}])
    assert listed.post("/v1/jobs", json=tiny()).status_code == 201
