"""Checks of a run's place in its data: it was trained on the rows of the order, row for row."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hostcore.checkpoints.find import Found
from hostcore.checkpoints.names import record_name
from hostcore.verification.checkpoint_checks import MALFORMED, below, host_state
from hostcore.verification.checks import RunCheck, judged

if TYPE_CHECKING:
    from hostcore.worker.feed.digest import OrderLayout
    from hostcore.worker.feed.feed import Cursor
    from hostcore.worker.feed.mixture import MixtureLayout

_ID: Final = "data.order"


def check_order(checkpoints: Sequence[Found], *, root: Path) -> Iterator[RunCheck]:
    """Recompute, from the order of the rows alone, what the run of each checkpoint should have been trained on.

    The digest in a checkpoint covers every row from the first step on, over all attempts: it agrees only if each came
    once, and in its place. No data is read.

    :param checkpoints: That verify; oldest first.
    :param root: The run directory, which paths are shown below.
    """
    orders = _Orders()
    for found in checkpoints:
        path = below(root, found.folder)
        try:
            check = _check_place(found, host_state(found.folder), orders, path)
        except MALFORMED as error:
            if not found.folder.with_name(record_name(found.record.step)).exists():
                continue  # it was pruned since it was verified: the record goes first, and then the files one by one
            told = f"what it says of its place in the data cannot be read: {error!r}"
            check = RunCheck(id=_ID, status="failed", message=told, path=path)
        yield check


def owed_of(found: Found) -> Sequence[str]:
    """The evaluations that a checkpoint keeps for the next attempt, as ``run_resumed`` names them."""
    try:
        owed = host_state(found.folder).get("owed", {})
        names = ["validation"] if owed.get("validation") else []
        return names if owed.get("sample") is None else [*names, f"samples/{int(owed['sample'])}"]
    except MALFORMED:
        return ()  # reported by its own check


def _check_place(found: Found, host: Mapping[str, Any], orders: "_Orders", path: str) -> RunCheck:
    from hostcore.worker.feed.feed import Cursor
    from hostcore.worker.feed.mixture import MixtureLayout

    if "cursor" not in host:
        return RunCheck(id=_ID, status="skipped", message="it was written before checkpoints had a digest", path=path)
    layout = MixtureLayout.stored(host["data"], tuple(host["shard_rows"]))
    if not layout.rows_per_epoch:
        return RunCheck(id=_ID, status="skipped", message="the job has no data, and so no order of it", path=path)
    cursor = Cursor(epoch=host["cursor"]["epoch"], rows=host["cursor"]["rows"])
    digest, expected = host["cursor"]["digest"], orders.digest(layout, cursor)
    step, rows = found.record.step, cursor.epoch * layout.rows_per_epoch + cursor.rows
    problems = []
    if rows != step * layout.rows_per_step:
        problems.append(f"it stands behind {rows:,} rows after {step:,} steps of {layout.rows_per_step:,} rows")
    if digest != expected:
        problems.append(
            f"its run was not trained on the first {rows:,} rows of the order, each once: their digest should be "
            f"{expected:016x}, and is {digest:016x}"
        )
    unit = host.get("unit", "")
    what = "mock batches" if "mock_batches" in host["data"] else unit or "rows"
    place = f"epoch {cursor.epoch + 1}, {cursor.rows:,} of {layout.rows_per_epoch:,}"
    once = "" if isinstance(layout, MixtureLayout) else "once an epoch and "
    told = f"{rows:,} {what} were trained on, each {once}in its place ({place})"
    if unit:
        told += "; counted: that each is the same again is up to what gives them"
    return judged(_ID, problems, otherwise=told, path=path)


class _Orders:
    """Digests of orders from their first row on. Each continues where the one before ended."""

    def __init__(self) -> None:
        self._known: dict[OrderLayout | MixtureLayout, tuple[Cursor, int]] = {}

    def digest(self, layout: "OrderLayout | MixtureLayout", until: "Cursor") -> int:
        """The digest of everything up to a cursor, from the beginning."""
        from hostcore.worker.feed.digest import expected_digest
        from hostcore.worker.feed.feed import Cursor

        since, before = self._known.get(layout, (Cursor(), 0))
        if (until.epoch, until.rows) < (since.epoch, since.rows):
            since, before = Cursor(), 0
        digest = (before + expected_digest(layout, since, until)) % 2**64
        self._known[layout] = until, digest
        return digest
