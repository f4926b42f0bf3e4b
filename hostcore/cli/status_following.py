"""Watching a run on a terminal until it is over."""

from collections.abc import Callable

from hostcore.cli.output import shown
from hostcore.cli.status_lines import Sight, head_of


def follow_status(
    *, is_over: Callable[[], bool], look: Callable[[], Sight], wait: Callable[[], None], draw: bool
) -> None:
    """Wait until a run is over.

    :param look: How it is.
    :param wait: Called between two looks.
    :param draw: Whether to show it meanwhile.
    """
    if not draw:
        while not is_over():
            wait()
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, transient=True) as live:
        while not is_over():
            text = "\n".join(head_of(look(), verbose=False))
            live.update(Text.from_ansi(shown(text), no_wrap=True, overflow="ellipsis"), refresh=True)
            wait()
