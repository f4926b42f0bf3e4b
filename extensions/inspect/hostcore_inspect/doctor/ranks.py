"""Check of several ranks: they add up a vector, as in every step of a distributed training."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs

from hostcore.probe import Answer, Probe
from hostcore.supervisor.workers.spawn import LocalRanks
from hostcore_inspect.doctor.finding import DoctorFinding

_OUTPUT_LINES: Final = 10
_POLL_SECONDS: Final = 0.02
#: For the answers of the other ranks after one has failed.
_GRACE_SECONDS: Final = 3.0
_DEVICES: Final = {"gloo": "cpu", "nccl": "cuda"}
_HINTS: Final = {
    "gloo": "processes must reach one another over the loopback device; unset GLOO_SOCKET_IFNAME if it is set",
    "nccl": "NCCL_DEBUG=INFO gives details; try NCCL_P2P_DISABLE=1, and a larger /dev/shm",
}


@attrs.frozen
class RankProbes:
    """Processes that have been started, and have an answer each."""

    backend: str
    probes: tuple[Probe, ...]

    def finding(self, timeout_seconds: float) -> DoctorFinding:
        """Wait for all of them, and judge their sums. When one has failed, the others wait for it in vain."""
        while self.probes[0].seconds < timeout_seconds:
            codes = [probe.code for probe in self.probes]
            if None not in codes:
                break
            if any(codes):
                timeout_seconds = min(timeout_seconds, self.probes[0].seconds + _GRACE_SECONDS)
            time.sleep(_POLL_SECONDS)
        return sums_finding(self.backend, [probe.answer(timeout_seconds) for probe in self.probes])


@contextmanager
def adding_up(backend: str, world_size: int) -> Iterator[RankProbes]:
    """Start ranks that add up a vector; end them at the end.

    :param backend: ``gloo``, on the CPU; ``nccl``, on the first GPUs, one rank each.
    :param world_size: At least 2.
    """
    ranks = LocalRanks(world_size)
    with ranks.listening() as meeting, ExitStack() as stack:
        probes = [
            stack.enter_context(
                Probe(
                    "hostcore_inspect.doctor.rank_probe",
                    [_DEVICES[backend]],
                    environment=ranks.environment(rank),
                    pass_fds=[meeting.fileno()] if rank == 0 else [],
                )
            )
            for rank in range(world_size)
        ]
        yield RankProbes(backend, tuple(probes))


def sums_finding(backend: str, answers: list[Answer]) -> DoctorFinding:
    """Judge the sums of the ranks of a backend, or report the first rank that failed."""
    name, count = f"ranks.{backend}", len(answers)
    sums = [answer.last("sum") for answer in answers]
    details = {"world_size": count, "sums": sums}
    # The rank with an error of its own explains those that waited for it.
    troubled = sorted(
        ((answer.last("error") is None, rank, answer) for rank, answer in enumerate(answers) if answer.trouble),
        key=lambda one: one[:2],
    )
    if troubled:
        _, rank, answer = troubled[0]
        return DoctorFinding(
            name=name,
            status="failed",
            finding=f"rank {rank} of {count} cannot add up with {backend}: {answer.trouble}",
            hint=_HINTS[backend],
            details={**details, "output": answer.output.splitlines()[-_OUTPUT_LINES:]},
        )
    wrong = sum(one["wrong"] for one in sums)
    if wrong:
        return DoctorFinding(
            name=name,
            status="failed",
            finding=f"{wrong:,} numbers that {count} ranks added up with {backend} are wrong",
            hint="the link between the devices, its driver or the build of torch is broken; try NCCL_P2P_DISABLE=1",
            details=details,
        )
    megabytes, seconds = sums[0]["bytes"] / 1e6, max(one["seconds"] for one in sums)
    return DoctorFinding(
        name=name,
        status="ok",
        finding=f"{count} processes added up {megabytes:.0f} MB in {1e3 * seconds:.3g} ms",
        details=details,
    )
