"""Sweep files: what they may say, and that everything that is wrong is told at once."""

import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from optuna.trial import create_trial

from hostcore.errors import all_errors
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.search import TrialSearch
from hostcore_sweeps.space import Parameter, grid
from hostcore_sweeps.spec import Sweep, load_sweep, sweep_schema

SWEEP: dict[str, Any] = {
    "job": {"trainer": "tiny", "max_steps": 3},
    "space": {"/hyperparams/lr": {"log_uniform": [1e-5, 1e-1]}},
    "objective": {"metric": "val/loss", "mode": "min"},
    "limits": {"trials": 3},
}


def sweep_of(**keys: Any) -> Sweep:
    return load_sweep({**SWEEP, **keys})


def errors_of(**keys: Any) -> dict[str, str]:
    """The messages, by pointer."""
    with pytest.raises(HostcoreError) as raised:
        sweep_of(**keys)
    return {error.pointer or "": error.message for error in all_errors(raised.value)}


def test_all_errors_are_told_at_once_with_their_places() -> None:
    told = errors_of(
        space={"/hyperparams/lr": {"uniform": [2, 1]}, "/seed": {}},
        objective={"metric": "val/loss", "mode": "least"},
        limts={"trials": 3},
    )
    assert set(told) == {"/space/~1hyperparams~1lr", "/space/~1seed", "/objective/mode", "/limts"}


def test_rules_between_keys_are_told_together() -> None:
    told = errors_of(
        sampler="grid", pruner={"use": "median", "min_steps": 3}, objective=[SWEEP["objective"], SWEEP["objective"]]
    )
    assert set(told) == {"/space/~1hyperparams~1lr", "/pruner", "/pruner/min_steps", "/objective"}


@pytest.mark.parametrize(
    ("space", "pointer"),
    [
        ({"hyperparams.lr": {"uniform": [0, 1]}}, "/space/hyperparams.lr"),
        ({"/run_id": {"choice": ["a"]}}, "/space/~1run_id"),
        ({"/hyperparams": {"choice": [{}]}, "/hyperparams/lr": {"uniform": [0, 1]}}, "/space/~1hyperparams~1lr"),
        ({"/seed": {"integer": [0, 1], "when": {"/sed": 1}}}, "/space/~1seed/when"),
        ({"/seed": {"integer": [0, 1], "when": {"/seed": 1}}}, "/space"),
        ({"/max_steps/x": {"uniform": [0, 1]}}, "/space/~1max_steps~1x"),
        ({"/seed": {"log_uniform": [0, 1]}}, "/space/~1seed"),
        ({"/seed": {"choice": [1, 1]}}, "/space/~1seed"),
        ({"/seed": {"choice": ["a"]}}, "/space/~1seed"),
        ({"/datasett/batch_size": {"integer": [1, 2]}}, "/space/~1datasett~1batch_size"),
        (
            {"/resources/num_nodes": {"choice": [0, -1]}, "/resources/gpus_per_node": {"choice": [1, 2]}},
            "/space/~1resources~1num_nodes",
        ),
        ({"/hyperparams/lr": {"uniform": [-1e308, 1e308]}}, "/space/~1hyperparams~1lr"),
        ({"/hyperparams/lr": {"uniform": [0, 1], "step": 1e-300}}, "/space/~1hyperparams~1lr"),
        ({"/hyperparams/n": {"integer": [0, 2**62]}}, "/space/~1hyperparams~1n"),
        ({"/hyperparams/n": {"choice": list(range(10**5))}}, "/space/~1hyperparams~1n/choice"),
    ],
)
def test_a_wrong_space_is_told_at_the_parameter(space: dict[str, Any], pointer: str) -> None:
    assert list(errors_of(space=space)) == [pointer]


def test_an_error_of_the_job_is_told_in_the_job(tmp_path: Path) -> None:
    assert list(errors_of(job={"trainer": 3})) == ["/job/trainer"]
    assert list(errors_of(job={"trainer": "tiny", "max_steps": 3, "labels": 3})) == ["/job/labels"]
    (tmp_path / "job.json").write_text('{"trainer": 3}')
    (tmp_path / "sweep.json").write_text(json.dumps({**SWEEP, "job": "job.json"}))
    with pytest.raises(HostcoreError) as raised:
        load_sweep(tmp_path / "sweep.json")
    (error,) = all_errors(raised.value)
    assert (error.pointer, error.file) == ("/trainer", str(tmp_path / "job.json"))


def test_the_job_may_include_others_and_an_error_names_the_file_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"include": "more/base.json", "hyperparams": {"width": 4}}')
    (tmp_path / "more").mkdir()
    base = tmp_path / "more/base.json"
    base.write_text('{"trainer": "tiny", "max_steps": 3, "weights": "w.pt", "hyperparams": {"lr": 1}}')
    (tmp_path / "sweep.toml").write_text(
        """"$schema" = "./sweep.schema.json"
        job = "job.json"
        space = {"/hyperparams/lr" = {uniform = [0, 1]}}
        objective = {metric = "val/loss", mode = "min"}
        limits = {trials = 3}
        """
    )
    job = load_sweep(tmp_path / "sweep.toml").job_of(0, {"/hyperparams/lr": 0.5})
    assert (job["hyperparams"], job["weights"]) == ({"lr": 0.5, "width": 4}, str(tmp_path / "more/w.pt"))
    for text, pointer in (('{"trainer": "tiny", "max_steps": "3"}', "/max_steps"), ("{", None)):
        base.write_text(text)
        with pytest.raises(HostcoreError) as raised:
            load_sweep(tmp_path / "sweep.toml")
        (error,) = all_errors(raised.value)
        assert (error.pointer, error.file) == (pointer, str(base))


def test_a_job_in_place_of_a_sweep_is_one_error() -> None:
    with pytest.raises(HostcoreError, match="this is a job, not a sweep"):
        load_sweep({"trainer": "tiny", "max_steps": 3, "callbacks": []})


def test_a_hint_names_no_option_that_a_sweep_does_not_have() -> None:
    with pytest.raises(HostcoreError) as raised:
        sweep_of(job={"trainer": "tiny", "callbacks": []}, space={"/callbacks/7/patience": {"integer": [1, 2]}})
    (error,) = all_errors(raised.value)
    assert "--set" not in (error.hint or "")


def test_the_values_stand_at_their_pointers_and_the_job_has_a_run_id_of_the_trial() -> None:
    job = sweep_of(sweep_id="walk").job_of(7, {"/hyperparams/lr": 0.5, "/dataset/batch_size": 4})
    assert job["hyperparams"] == {"lr": 0.5}
    assert job["dataset"] == {"batch_size": 4}
    assert job["run_id"] == "walk-0007"
    assert job["labels"] == {"sweep": "walk", "trial": "7"}


def test_the_id_follows_from_everything_but_the_limits() -> None:
    assert sweep_of().sweep_id == sweep_of(limits={"trials": 100, "parallel": 4}).sweep_id
    others = [{"seed": 1}, {"job": {"trainer": "tiny", "max_steps": 4}}, {"sampler": "random"}]
    assert len({sweep_of(**keys).sweep_id for keys in [{}, *others]}) == 4


def test_what_a_folder_keeps_is_the_same_sweep_again() -> None:
    sweep = sweep_of(
        space={
            "/hyperparams/kind": {"choice": ["a", {"b": [1, None]}, 1, True]},
            "/hyperparams/m": {"uniform": [0, 1], "step": 0.25, "when": {"/hyperparams/kind": ["a", True]}},
        },
        pruner={"use": "asha", "min_steps": 3},
    )
    assert load_sweep(json.loads(json.dumps(sweep.as_dict()))) == sweep


def test_a_grid_has_every_combination_once_and_heeds_conditions() -> None:
    sweep = sweep_of(
        sampler="grid",
        limits={},
        space={
            "/hyperparams/m": {"uniform": [0, 0.5], "step": 0.25, "when": {"/hyperparams/kind": "sgd"}},
            "/hyperparams/kind": {"choice": ["sgd", "adam"]},
            "/hyperparams/layers": {"integer": [1, 2]},
        },
    )
    found = list(grid(sweep.space))
    assert len(found) == sweep.most_trials == 2 * (3 + 1)
    assert len({json.dumps(one, sort_keys=True) for one in found}) == 8
    assert all(("/hyperparams/m" in one) == (one["/hyperparams/kind"] == "sgd") for one in found)


@pytest.mark.parametrize(("high", "step", "count"), [(0.6, 0.1, 7), (1.1, 0.3, 4)])
def test_steps_stay_within_the_bounds_and_are_values_of_optuna(high: float, step: float, count: int) -> None:
    parameter = Parameter(uniform=(0.0, high), step=step)
    values = list(parameter.all_values())
    assert len(values) == count
    assert parameter.nearest(high) == values[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 1.1 is no multiple of 0.3
        distribution = parameter.distribution()
    for value in values:
        create_trial(value=0.0, params={"x": value}, distributions={"x": distribution})  # which refuses others


def test_the_beginning_of_a_huge_grid_can_be_tried() -> None:
    space = {"/seed": {"integer": [0, 10**12]}, "/hyperparams/n": {"integer": [0, 10**12]}}
    assert sweep_of(sampler="grid", limits={"trials": 3}, space=space).most_trials == 3


def test_the_schema_takes_what_is_taken_and_refuses_what_is_not() -> None:
    schema = sweep_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"$schema": "./sweep.schema.json", **SWEEP}, schema)
    jsonschema.validate({**SWEEP, "pruner": {"use": "asha", "min_steps": 3}, "sampler": "grid"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SWEEP, "limits": {"trials": 0}}, schema)


WIDTH = {"/hyperparams/width": {"integer": [1, 9], "step": 4}}
OPTIMIZER = {"/hyperparams/optimizer": {"choice": ["sgd", "adam"]}}
LAYERS = {"/hyperparams/layers": {"choice": [[8], [16, 16]]}}
RATE = {"/hyperparams/rate": {"uniform": [0.1, 0.7], "step": 0.1}}


def with_condition(space: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """The space, and a momentum that exists where its one parameter has a value."""
    return {**space, "/hyperparams/momentum": {"uniform": [0.5, 0.99], "when": dict.fromkeys(space, wanted)}}


@pytest.mark.parametrize(
    ("space", "wanted", "hint"),
    [
        (OPTIMIZER, "SGD", 'did you mean "sgd"?'),
        (OPTIMIZER, ["adam", "SGD"], 'did you mean "sgd"?'),
        (OPTIMIZER, 3, 'it is "sgd" or "adam"'),
        (WIDTH, 7, "it is from 1 to 9 in steps of 4"),
        (WIDTH, True, "it is from 1 to 9 in steps of 4"),
        (LAYERS, [8, 8], "it is a list of 1 or a list of 2"),
        ({"/hyperparams/lr": {"uniform": [0, 1]}}, 0.5, "give that parameter a step, or a choice"),
    ],
)
def test_a_condition_that_can_never_hold_is_an_error_with_what_there_is(
    space: dict[str, Any], wanted: Any, hint: str
) -> None:
    with pytest.raises(HostcoreError) as raised:
        sweep_of(space=with_condition(space, wanted))
    for error in all_errors(raised.value):
        (name,) = space
        assert error.pointer == f"/space/~1hyperparams~1momentum/when/{name.replace('/', '~1')}"
        assert hint in (error.hint or "")


def test_conditions_that_contradict_one_another_are_an_error() -> None:
    nested = {"/hyperparams/beta": {"uniform": [0, 1], "step": 0.5, "when": {"/hyperparams/optimizer": "adam"}}}
    both = {"/hyperparams/optimizer": "sgd", "/hyperparams/beta": 0.5}
    told = errors_of(space={**OPTIMIZER, **nested, "/hyperparams/momentum": {"uniform": [0, 1], "when": both}})
    assert list(told) == ["/space/~1hyperparams~1momentum/when"]


@pytest.mark.parametrize(
    ("space", "wanted", "holds"),
    [
        (WIDTH, 5.0, 1),  # as JSON of other programs has it
        (LAYERS, [16, 16], 1),  # a list that is a choice
        (LAYERS, [[8], [16, 16]], 2),
        (RATE, 0.3, 1),  # which is 0.1 + 2 * 0.1
    ],
)
def test_a_condition_holds_for_the_values_that_it_names(space: dict[str, Any], wanted: Any, holds: int) -> None:
    momentum = "/hyperparams/momentum"
    asked = with_condition(space, wanted)
    asked[momentum] = {"choice": [0.5], "when": asked[momentum]["when"]}
    sweep = sweep_of(space=asked, sampler="grid", limits={})
    assert sum(momentum in values for values in grid(sweep.space)) == holds


def test_a_grid_that_comes_to_no_end_is_an_error_unless_trials_are_limited() -> None:
    space = {f"/hyperparams/n{number}": {"integer": [1, 1000]} for number in range(6)}
    assert list(errors_of(space=space, sampler="grid", limits={})) == ["/space"]
    assert sweep_of(space=space, sampler="grid", limits={"trials": 7}).most_trials == 7


def test_thousands_of_choices_are_sampled() -> None:
    names = [f"file-{number}" for number in range(10_000)]
    sweep = sweep_of(space={"/hyperparams/file": {"choice": [*names[1:], 0]}}, sampler="random")
    trial = TrialSearch(sweep, parallel=1).sample(0, [])
    assert trial is not None
    assert trial.values["/hyperparams/file"] in [*names, 0]


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ({"integer": [1, 10], "step": 4}, {1, 5, 9}),
        ({"uniform": [0.0, 0.35], "step": 0.1}, {0.0, 0.1, 0.2, 0.3}),
    ],
)
def test_a_step_that_does_not_come_to_the_upper_bound_is_sampled_without_a_warning(
    parameter: dict[str, Any], values: set[float]
) -> None:
    search = TrialSearch(sweep_of(space={"/hyperparams/x": parameter}, sampler="random"), parallel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trials = [search.sample(number, []) for number in range(20)]
    assert {round(trial.values["/hyperparams/x"], 9) for trial in trials if trial is not None} == values


def test_a_pointer_of_a_hundred_thousand_levels_is_one_short_error() -> None:
    space = {"/hyperparams" + "/a" * 100_000: {"uniform": [0, 1]}}
    with pytest.raises(HostcoreError) as raised:
        sweep_of(space=space)
    (error,) = all_errors(raised.value)
    assert error.message == "the pointer has 100,001 levels; a job is nested at most 64 levels deep"
    assert len(error.pointer or "") < 100
