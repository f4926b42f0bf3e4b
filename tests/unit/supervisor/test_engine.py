"""Ranks that an engine has started: what its environment says, and which devices ranks may have."""

from collections.abc import Callable

import pytest

from hostcore.errors import Errors
from hostcore.supervisor.devices import shared_device
from hostcore.supervisor.engine import START_VARIABLE, SUPERVISOR_VARIABLE, Engine, InvalidRanks, threads_for
from hostcore_hookspecs import HostcoreError

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "77",
    "TORCHELASTIC_RESTART_COUNT": "1",
}


class TestAnEnvironment:
    def test_of_torchrun_is_adopted(self) -> None:
        engine = Engine.of(TORCHRUN)
        assert engine is not None
        assert (engine.rank, engine.local_rank, engine.world_size, engine.local_world_size) == (3, 1, 4, 2)
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # the others are torchrun's
        other = Engine.of({name: TORCHRUN[name] for name in names})
        assert other is not None
        assert (other.local_rank, other.local_world_size, other.launch) == (0, 1, "none")

    @pytest.mark.parametrize(
        "changes",
        [
            {"RANK": None},
            {"RANK": ""},
            {"WORLD_SIZE": None},
            {"WORLD_SIZE": "1", "RANK": "0"},
            {SUPERVISOR_VARIABLE: "1"},
        ],
        ids=str,
    )
    def test_without_ranks_or_inside_a_worker_is_not(self, changes: dict[str, str | None]) -> None:
        environment = {name: value for name, value in {**TORCHRUN, **changes}.items() if value is not None}
        assert Engine.of(environment) is None

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
            ({"RANK": "4"}, "RANK is '4', and not a whole number below 4"),
            ({"RANK": "-1"}, "RANK is '-1'"),
            ({"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
            ({"MASTER_PORT": ""}, "MASTER_PORT is not"),
            ({"MASTER_PORT": "99999"}, "MASTER_PORT is '99999'"),
        ],
    )
    def test_that_does_not_fit_together_is_an_error(self, changes: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidRanks) as caught:
            Engine.of({**TORCHRUN, **changes})
        assert says in caught.value.message
        assert "unset RANK" in caught.value.hint

    @pytest.mark.parametrize(
        ("changes", "name", "is_local"),
        [
            ({}, "node-0-29500-77", False),
            ({"TORCHELASTIC_RESTART_COUNT": "2"}, "node-0-29500-77", False),  # an agent counts its own failures alone
            ({"TORCHELASTIC_RUN_ID": "b"}, "node-0-29500-b", False),  # another launch meets elsewhere
            *(({"MASTER_ADDR": one}, None, True) for one in ("127.0.0.1", "localhost", "::1")),
        ],
    )
    def test_names_the_place_where_its_ranks_meet(
        self, changes: dict[str, str], name: str | None, is_local: bool
    ) -> None:
        engine = Engine.of({**TORCHRUN, **changes})
        assert engine is not None
        assert engine.is_local is is_local
        assert name in (None, engine.name)

    def test_of_the_worker_is_completed_and_keeps_what_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        environment = Engine.of({**TORCHRUN, "LOCAL_RANK": "", "LOCAL_WORLD_SIZE": ""}).environment("s1")  # type: ignore[union-attr]
        own = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", START_VARIABLE)
        assert tuple(environment[name] for name in own) == ("0", "1", "s1")
        assert environment["OMP_NUM_THREADS"] == "7"


def test_ranks_of_a_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert threads_for(1) == {}
    assert threads_for(3) == {"OMP_NUM_THREADS": "2"}
    assert threads_for(100) == {"OMP_NUM_THREADS": "1"}


class TestDevices:
    @pytest.mark.parametrize("devices", [["cuda", "cuda"], ["cuda", "cuda:1"]])
    def test_cuda_beside_another_gpu_is_not_clear(self, plan: Callable, devices: list[str]) -> None:
        with pytest.raises(HostcoreError, match="does not say which GPU") as caught:
            plan(devices=devices)
        assert (caught.value.pointer, caught.value.hint) == ("/devices", "name them: cuda:0, cuda:1")

    @pytest.mark.parametrize("devices", [["cuda"], ["cpu", "cpu"], ["cuda", "cpu"], ["cuda:0", "cuda:1"]])
    def test_that_are_clear_are_planned(self, plan: Callable, devices: list[str]) -> None:
        assert plan(devices=devices).spec.ranks == len(devices)

    def test_several_ranks_share_the_processor_and_nothing_else(self, plan: Callable) -> None:
        spec = plan().spec
        assert shared_device(spec, ["cpu", "cpu", "cuda:0", "cuda:1"]) is None
        shared = shared_device(spec, ["cuda:1", "cuda:0", "cuda:1"])
        assert shared is not None
        assert shared.message == "2 ranks cannot share cuda:1"

    def test_the_ranks_of_an_engine_decide_about_the_global_batch(self, plan: Callable) -> None:
        from hostcore.supervisor.plan import make_plan

        job = {"trainer": "somewhere:Trainer", "mock_batches": [1], "global_batch_size": 4, "terminal": False}
        assert make_plan(job, world_size=4).spec.micro_batches == 1
        with pytest.raises(Errors, match="cannot make up a global batch of 4"):
            make_plan(job, world_size=3)


def test_the_only_rank_that_is_left_of_torchruns_is_alone() -> None:
    left = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "a"}
    assert Engine.of(left) is None
    assert Engine.started_alone(left)
    assert not Engine.started_alone({**left, "WORLD_SIZE": "2"})
    assert not Engine.started_alone({"RANK": "0", "WORLD_SIZE": "1"})
