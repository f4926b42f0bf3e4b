"""In what two runs differ."""

from typing import Any

from hostcore.runs.record import RunRecord
from hostcore_inspect.comparison import (
    ABSENT,
    environment_differences,
    job_differences,
    metric_pairs,
    plugin_differences,
)


def record(job: dict[str, Any] | None = None, **about: Any) -> RunRecord:
    return RunRecord(job={"trainer": "mine", **(job or {})}, job_dir="", **about)


def test_jobs_differ_in_the_innermost_places() -> None:
    a = record({"hyperparams": {"lr": 0.1, "a/b": [1, 2], "same": 1}, "run_id": "a"})
    b = record({"hyperparams": {"lr": 0.2, "a/b": [1, 3], "same": 1}, "run_id": "b", "seed": 1})
    assert [one.as_dict("pointer") for one in job_differences(a, b)] == [
        {"pointer": "/hyperparams/lr", "a": 0.1, "b": 0.2},
        {"pointer": "/hyperparams/a~1b/1", "a": 2, "b": 3},
        {"pointer": "/seed", "b": 1},
    ]


def test_lists_of_different_lengths_differ_as_a_whole() -> None:
    (only,) = job_differences(record({"callbacks": ["ema"]}), record({"callbacks": ["lr", "ema"]}))
    assert only.as_dict("pointer") == {"pointer": "/callbacks", "a": ["ema"], "b": ["lr", "ema"]}


def test_many_runs_differ_where_any_two_do() -> None:
    runs = [
        record({"hyperparams": {"lr": lr, "same": 1}, **seed})
        for lr, seed in ((0.1, {}), (0.1, {"seed": 2}), (0.2, {"seed": 2}))
    ]
    assert [(one.place, list(one.values)) for one in job_differences(*runs)] == [
        ("/hyperparams/lr", [0.1, 0.1, 0.2]),
        ("/seed", [ABSENT, 2, 2]),
    ]


def test_true_is_not_1_and_null_is_not_absent() -> None:
    a, b = record({"shuffle": True, "note": None}), record({"shuffle": 1})
    assert [one.as_dict("pointer") for one in job_differences(a, b)] == [
        {"pointer": "/shuffle", "a": True, "b": 1},
        {"pointer": "/note", "a": None},
    ]


def test_plugins_differ_in_version_and_content() -> None:
    def plugin(name: str, version: str, sha256: str) -> dict[str, Any]:
        told = {"kind": "callback", "name": name, "value": "m:C", "distribution": "dist"}
        return {**told, "version": version, "sha256": sha256}

    a = record(plugins=[plugin("same", "1", "x"), plugin("newer", "1", "y"), plugin("edited", "1", "z")])
    b = record(plugins=[plugin("same", "1", "x"), plugin("newer", "2", "y"), plugin("edited", "1", "w")])
    assert [one.place for one in plugin_differences(a, b)] == ["callback newer", "callback edited"]


def test_environments_differ_by_name() -> None:
    a = record(environment={"hostcore": "1", "python": "3.11"})
    b = record(environment={"hostcore": "2", "python": "3.11"})
    assert [one.as_dict("name") for one in environment_differences(a, b)] == [{"name": "hostcore", "a": "1", "b": "2"}]


def test_metrics_have_a_difference_where_both_are_finite() -> None:
    pairs = metric_pairs({"loss": 2.0, "nan": None, "mine": 1.0}, {"loss": 1.5, "nan": 1.0})
    assert [(pair.name, pair.difference) for pair in pairs] == [("loss", -0.5), ("mine", None), ("nan", None)]
