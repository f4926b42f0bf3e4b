"""A progress bar on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostcore_builtin_plugins.control_characters import visible


@contextmanager
def shown_progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """While it is entered, a bar on standard error, if that is a terminal.

    :param total: In bytes; None: not known.
    :return: To be called with the bytes that have arrived.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(label, one_line=True), total=total)
        yield lambda done: progress.update(task, completed=done)
