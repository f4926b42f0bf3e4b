"""Who attends to jobs: names of processes, by which a later one can tell that an earlier one has died."""

from collections.abc import Iterable

from hostcore.runs.lease import ProcessIdentity


def attendant_name(turn: int) -> str:
    """The process that asks, at one of its turns: what is written at an earlier one does not pass for a later one's."""
    process = ProcessIdentity.current()
    return f"{process.host}/{process.boot_id}/{process.pid}/{process.start_time}/{turn}"


def dead(attendants: Iterable[str]) -> list[str]:
    """Those of some attendants that are processes of this machine, and do not run any more."""
    return [name for name in attendants if _is_dead(name)]


def _is_dead(name: str) -> bool:
    host, boot_id, pid, start_time, _ = name.split("/")
    process = ProcessIdentity(host=host, boot_id=boot_id, pid=int(pid), start_time=int(start_time))
    return process.is_here and not process.runs
