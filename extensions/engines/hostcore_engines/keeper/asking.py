"""The launcher's side: how the keepers of a launch do, and stopping them."""

import time
from collections.abc import Iterable
from typing import Final

from hostcore_builtin_plugins.processes import is_here, runs_here
from hostcore_engines.keeper.folder import LaunchFolder

_POLL_SECONDS: Final = 0.05


def is_kept(folder: LaunchFolder, node: int) -> bool:
    """Return whether the keeper of a node lives, and its command has not ended."""
    keeper = folder.claimed(node)
    if keeper is None or folder.ended(node) is not None:
        return False
    return runs_here(keeper) if is_here(keeper) else folder.was_seen_lately(node)


def any_kept(folder: LaunchFolder, nodes: int) -> bool:
    """Return whether any of the first ``nodes`` keepers lives."""
    return any(is_kept(folder, node) for node in range(nodes))


def stop(folder: LaunchFolder, nodes: Iterable[int], grace_seconds: float, *, patience_seconds: float) -> bool:
    """Ask the keepers to stop what they run, and wait for it.

    :param patience_seconds: How long it may take them to end by force what does not stop.
    :return: Whether all have ended. A machine that is not reached ends nothing.
    """
    waited_for = [node for node in nodes if is_kept(folder, node)]
    if not waited_for:
        return True
    folder.cancel(grace_seconds)
    due = time.monotonic() + grace_seconds + patience_seconds
    while any(is_kept(folder, node) for node in waited_for):
        if time.monotonic() > due:
            return False
        time.sleep(_POLL_SECONDS)
    return True
