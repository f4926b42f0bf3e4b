"""The spec: defaults, what follows from them, and the way back to JSON."""

import json
import random
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.errors import Errors
from hostcore.job.differences import job_differences
from hostcore.job.forms import object_form, structure
from hostcore.job.load import load_job
from hostcore.job.sections import ComponentUse, DatasetSpec, DeliveryUse, EnvironmentSpec, ResourcesSpec, dataset_keys
from hostcore.job.spec import JobSpec, job_view
from hostcore_hookspecs import Job, PluginUse, SampleRequest

DATA = {"parquet_paths": "a.parquet"}


def spec_of(**keys: Any) -> JobSpec:
    return load_job({"trainer": "x", "run_id": "r", "dataset": DATA, **keys})


def test_defaults_of_the_host_are_written_qualified() -> None:
    spec = spec_of()
    assert spec.terminal_use == DeliveryUse(use="hostcore-builtin-plugins/terminal")
    assert spec.launcher == ComponentUse(use="hostcore-builtin-plugins/local")
    assert spec.dataset is not None
    assert spec.dataset.source == "hostcore-builtin-plugins/parquet"


def test_every_key_of_the_job_has_a_meaning_for_the_reference() -> None:
    for cls in (JobSpec, DatasetSpec, ComponentUse, EnvironmentSpec, ResourcesSpec):
        for name, key in object_form(cls).keys.items():
            assert key.attribute.metadata.get("help"), f"{cls.__name__}.{name}"


def test_all_other_keys_of_a_dataset_belong_to_the_source() -> None:
    spec = spec_of(dataset={"source": "csv", "paths": "/a", "delimiter": ";", "batch_size": 8})
    assert spec.dataset == DatasetSpec(source="csv", batch_size=8, settings={"paths": "/a", "delimiter": ";"})
    assert spec.dataset.to_json() == {
        "source": "csv",
        "batch_size": 8,
        "readahead": 2,
        "columns": [],
        "shuffle": False,
        "workers": 0,
        "shuffle_window": 131072,
        "window_bytes": 67108864,
        "paths": "/a",
        "delimiter": ";",
    }


def test_a_mistyped_key_of_the_host_in_a_dataset_is_recognised_when_its_source_refuses_it() -> None:
    @attrs.frozen
    class Settings:
        paths: str

    with pytest.raises(Errors) as caught:
        structure(Settings, {"paths": "a", "batchsize": 64}, pointer="/dataset", elsewhere=dataset_keys())
    (error,) = caught.value.errors
    assert (error.pointer, error.hint) == ("/dataset/batchsize", 'did you mean "batch_size"?')


@pytest.mark.parametrize(
    ("keys", "limit"), [({}, 1), ({"epochs": 3}, 3), ({"max_steps": 9}, None), ({"max_steps": 9, "epochs": 2}, 2)]
)
def test_epochs_are_one_unless_steps_are_given(keys: dict[str, Any], limit: int | None) -> None:
    assert spec_of(**keys).epoch_limit == limit
    assert job_view(spec_of(**keys)).epochs == limit


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ({}, ("auto",)),
        ({"devices": "auto:2"}, ("auto", "auto")),
        ({"devices": ["auto:3"]}, ("auto", "auto", "auto")),
        ({"device": "cuda:7"}, ("cuda:7",)),
        ({"devices": "mps"}, ("mps",)),
        ({"devices": ["cuda:0", "cuda:1"]}, ("cuda:0", "cuda:1")),
        ({"device": "auto", "devices": ["cpu"]}, ("cpu",)),
    ],
)
def test_one_device_is_requested_per_rank(keys: dict[str, Any], devices: tuple[str, ...]) -> None:
    assert spec_of(**keys).requested_devices == devices


def test_the_global_batch_is_rows_times_ranks_times_accumulation() -> None:
    assert spec_of().rows_per_step == 32
    assert spec_of(dataset={**DATA, "batch_size": 8}, devices=["cpu", "cpu"], accumulate=3).rows_per_step == 48
    assert spec_of(global_batch_size=64).rows_per_step == 64
    assert load_job({"trainer": "x", "max_steps": 1}).rows_per_step == 1


def test_plugins_see_the_job_with_everything_worked_out() -> None:
    settings = {"uri": "s3://b/r", "storage_options": {"token": {"$secret": "env:T"}}}
    delivered = {"uploaders": [{"use": "fsspec", "required": True, **settings}], "samples": [{"prompt": "x"}]}
    keys = {"hyperparams": {"lr": 1}, "max_steps": 9, "seed": 3, "labels": {"a": "b"}, **delivered}
    spec = spec_of(dataset={**DATA, "batch_size": 8}, **keys)
    assert spec.dataset is not None
    assert job_view(spec) == Job(
        run_id="r",
        trainer="x",
        hyperparams={"lr": 1},
        dataset=spec.dataset.to_json(),
        batch_size=8,
        global_batch_size=8,
        max_steps=9,
        seed=3,
        labels={"a": "b"},
        checkpoint_seconds=600.0,
        uploaders=(PluginUse(name="fsspec", settings=settings),),
        samples=(SampleRequest(prompt="x"),),
    )


def test_a_spec_is_frozen_and_where_it_came_from_is_not_part_of_it() -> None:
    spec = spec_of()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.seed = 3  # type: ignore[misc]
    assert attrs.evolve(spec, job_dir=Path("/jobs")) == spec
    assert "job_dir" not in spec.to_json()
    components = spec_of(callbacks=["a", {"use": "b"}, {"use": "c", "n": 1}]).to_json()["callbacks"]
    assert components == ["a", "b", {"use": "c", "n": 1}], "one without settings is its name"


# --- the round trip


def random_value(dice: random.Random, depth: int = 0) -> Any:
    scalars = [None, True, False, 0, -7, 2**40, 0.5, -1e-9, "", "text", "ünï", "a/b~c"]
    if depth > 2 or dice.random() < 0.6:
        return dice.choice(scalars)
    if dice.random() < 0.5:
        return [random_value(dice, depth + 1) for _ in range(dice.randrange(3))]
    return {dice.choice("abc/~ü"): random_value(dice, depth + 1) for _ in range(dice.randrange(3))}


def random_mapping(dice: random.Random) -> dict[str, Any]:
    return {name: random_value(dice) for name in dice.sample(["lr", "model", "a b", "x/y"], dice.randrange(4))}


def random_component(dice: random.Random) -> Any:
    name = dice.choice(["a", "dist/b", "pkg.mod:Cls", "pkg:"])
    return name if dice.random() < 0.5 else {"use": name, **random_mapping(dice)}


def random_job(dice: random.Random) -> dict[str, Any]:
    job: dict[str, Any] = {"trainer": dice.choice(["t", "my-dist/t", "a.b:C"])}
    optional: dict[str, Any] = {
        "run_id": "run.1",
        "hyperparams": random_mapping(dice),
        "metric_every": dice.randrange(100),
        "checkpoint_every": dice.randrange(100),
        "seed": dice.randrange(2**32),
        "deterministic": dice.random() < 0.5,
        "device": dice.choice(["auto", "cpu", "cuda", "cuda:12"]),
        "callbacks": [random_component(dice) for _ in range(dice.randrange(3))],
        "reporters": [random_component(dice) for _ in range(dice.randrange(3))],
        "launcher": dice.choice(["local", {"use": "local", "setting": 1}]),
        "keep_checkpoints": dice.randrange(5),
        "resume_from_checkpoint": dice.choice([True, False, "auto", "/a/step-1.json"]),
        "weights": dice.choice(["/w", "s3://w", None]),
        "owner": dice.choice([None, "me"]),
        "labels": {"a": "b"},
        "profiles": {"p": random_mapping(dice)},
    }
    job |= {key: optional[key] for key in dice.sample(sorted(optional), dice.randrange(len(optional)))}
    kind = dice.randrange(3)
    if kind == 0:
        job["dataset"] = {"parquet_paths": ["/a"], "columns": dice.sample("abc", 2), "lanes": dice.choice([None, 4])}
    elif kind == 1:
        job["dataset"] = {"source": "mock", "batch_size": dice.randrange(1, 99), **random_mapping(dice)}
    else:
        job["mock_batches"] = [random_value(dice) for _ in range(dice.randrange(1, 4))]
    if kind == 2 or dice.random() < 0.5:
        job["max_steps"] = dice.randrange(1, 1000)
    return job


def test_a_spec_written_as_json_loads_into_an_equal_spec() -> None:
    for seed in range(200):
        spec = load_job(random_job(random.Random(seed)))
        text = json.dumps(spec.to_json(), allow_nan=False)
        again = load_job(json.loads(text))
        assert again == spec, f"seed {seed}"
        assert json.dumps(again.to_json()) == text
        assert job_differences(spec, again) == []


def test_a_spec_with_every_later_key_survives_the_round_trip_as_well() -> None:
    spec = spec_of(
        validation=DATA,
        test={"source": "csv", "paths": ["a"]},
        validate_every="epoch",
        accumulate=2,
        global_batch_size=128,
        devices=["cuda:0", "cuda:1"],
        precision="bf16",
        samples=[{"prompt": "a cat", "seed": 3}, {}],
        uploaders=[{"use": "fsspec", "retries": 3}],
        resolvers=["hf"],
        policies=["quota"],
        checkpoint_base_uri="s3://b",
        inputs={"base_model_ref": "a", "tokenizer": {"uri": "s3://b/t", "sha256": "0" * 64, "storage_options": {}}},
        max_runtime_seconds=1.5,
        environment={"requirements": ["numpy>=2"], "python": "3.12"},
        resources={"num_nodes": 2, "memory_per_node_gb": 1.5, "env": {"A": "b"}},
    )
    plain = json.loads(json.dumps(spec.to_json()))
    assert load_job(plain) == spec
