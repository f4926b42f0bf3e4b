"""``python -m hostcore_inspect.doctor.rank_probe cuda``: one of several ranks that add up a vector.

They meet as those of a run do, and each takes the device of its number.
"""

import os
import sys
import time
from typing import Final

from hostcore.probe import Say, answer

#: 16 MiB of fp32.
_ITEMS: Final = 1 << 22
_TIMES: Final = 3


def examine(say: Say) -> None:
    """Report the errors of the sum over all ranks, and its time."""
    say(doing="importing torch")
    import torch
    import torch.distributed as dist

    from hostcore.worker.ranks.group import join
    from hostcore.worker.ranks.rank_info import RankInfo

    rank_info = RankInfo.of(os.environ)
    device = torch.device("cpu" if sys.argv[1] == "cpu" else f"{sys.argv[1]}:{rank_info.rank}")
    say(doing="meeting the other ranks")
    ranks = join(rank_info, device)
    say(doing=f"adding up on {device}")
    pattern = (torch.arange(_ITEMS, device=device) % 7).float()
    expected = rank_info.world_size * pattern + sum(range(rank_info.world_size))  # exact: small whole numbers
    seconds, wrong = [], 0
    for _ in range(_TIMES):
        vector = pattern + rank_info.rank
        started = time.perf_counter()
        dist.all_reduce(vector)
        wrong += int((vector != expected).sum().item())  # reading it waits for the device
        seconds.append(time.perf_counter() - started)
    say(sum={"wrong": wrong, "items": _TIMES * _ITEMS, "bytes": 4 * _ITEMS, "seconds": min(seconds)})
    say(doing="leaving the other ranks")
    ranks.close()


if __name__ == "__main__":
    answer(examine)
