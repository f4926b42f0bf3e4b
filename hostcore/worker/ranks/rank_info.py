"""Place of a process among the ranks."""

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class RankInfo:
    """Place of this process among the ranks, by torchrun's variables."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "RankInfo":
        """That of a process, by its environment."""
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        rank, local_rank, world_size = (
            int(environment.get(name, default)) for name, default in zip(names, "001", strict=True)
        )
        return cls(rank=rank, local_rank=local_rank, world_size=world_size)
