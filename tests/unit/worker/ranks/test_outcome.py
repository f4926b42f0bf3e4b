"""Doing something on all ranks: who gets which error."""

import errno
from typing import Any

import pytest
from thread_ranks import together

from hostcore.checkpoints.errors import CheckpointError
from hostcore.worker.ranks.one import OneRank
from hostcore.worker.ranks.outcome import DistributedError, on_all, on_first


def test_everybody_gets_what_it_returned_on_each() -> None:
    assert together(3, lambda rank: on_all(rank, lambda: rank.rank * 10)) == [[0, 10, 20]] * 3
    assert on_all(OneRank(), lambda: "alone") == ["alone"]
    assert together(2, lambda rank: on_first(rank, lambda: f"by {rank.rank}")) == ["by 0"] * 2


def test_the_error_of_the_first_that_could_not_ends_all() -> None:
    def fail(rank: Any) -> None:
        if rank.rank > 0:
            raise CheckpointError(f"no room for {rank.rank}", code="checkpoint.write", hint="make room")

    ours, own, other = together(3, lambda rank: on_all(rank, lambda: fail(rank)))

    assert isinstance(own, CheckpointError)
    assert own.message == "no room for 1"
    for error in (ours, other):
        assert isinstance(error, DistributedError)
        assert (error.message, error.code, error.hint) == ("rank 1: no room for 1", "checkpoint.write", "make room")


def test_the_number_of_an_error_of_the_system_is_known_to_all() -> None:
    def fail(rank: Any) -> None:
        if rank.rank == 0:
            raise OSError(errno.ENOSPC, "no space left")

    first, second = together(2, lambda rank: on_first(rank, lambda: fail(rank)))
    assert isinstance(first, OSError)
    assert isinstance(second, DistributedError)
    assert first.errno == second.errno == errno.ENOSPC


def test_an_exception_of_a_plugin_is_not_told_but_ends_its_rank() -> None:
    """Nobody else is there: a collective would wait for ever."""

    class Alone(OneRank):
        world_size = 2

        def gather(self, value: Any) -> list[Any]:
            raise AssertionError("nobody answers")

    def fail() -> None:
        raise KeyError("the plugin's own")

    with pytest.raises(KeyError):
        on_all(Alone(), fail)
