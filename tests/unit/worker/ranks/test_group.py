"""Joining, as far as one process can; real groups: e2e/ranks_worker."""

import pytest
import torch
import torch.distributed as dist

from hostcore.worker.ranks.group import CannotJoin, join
from hostcore.worker.ranks.one import OneRank
from hostcore.worker.ranks.rank_info import RankInfo

CPU = torch.device("cpu")


def test_a_single_rank_joins_nothing() -> None:
    ranks = join(RankInfo(), CPU, environment={})
    assert isinstance(ranks, OneRank)
    assert not dist.is_initialized()
    ranks.close()


def test_a_socket_that_is_none_is_an_error_that_says_where_the_ranks_were_to_meet() -> None:
    environment = {"HOSTCORE_MASTER_FD": "9999", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
    with pytest.raises(CannotJoin, match="did not come together") as caught:
        join(RankInfo(rank=0, world_size=2), CPU, environment=environment)
    assert "127.0.0.1:29999" in (caught.value.hint or "")


def test_a_gpu_without_nccl_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(CannotJoin, match="no NCCL"):
        join(RankInfo(rank=0, world_size=2), torch.device("cuda:0"), environment={})
