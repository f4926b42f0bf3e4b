"""Why the run failed."""

import os
from pathlib import Path
from typing import Final

from hostcore.cli.report_page.markup import Html, element, facts, join, shortened
from hostcore.cli.report_page.tables import traceback
from hostcore.supervisor.standing import Standing

_LONGEST_MESSAGE: Final = 10_000
_LONGEST_TRACEBACK: Final = 50_000
#: Of the end of the output, in bytes.
_OUTPUT_BYTES: Final = 8_000


def failure_section(standing: Standing) -> Html | None:
    """The failure, and what was printed last; None for a run that neither failed nor is lost."""
    error = standing.error
    if error is None and standing.lost is None:
        return None
    pairs: list[tuple[str, str]] = []
    if error is not None:
        pairs = [("Type", element("code", error.type)), ("Message", shortened(error.message, _LONGEST_MESSAGE))]
        pairs += [("Plugin", error.plugin)] if error.plugin else []
        pairs += [("Rank", str(error.rank))] if error.rank is not None else []
        pairs += [("What to do", error.hint)] if error.hint else []
    elif standing.lost is not None:
        pairs = [("Lost", standing.lost)]
    rank = (error.rank if error else None) or 0
    output = standing.directory.rank_output(standing.summary.attempt, rank)
    return join(
        facts(pairs),
        join(element("h3", "Traceback"), traceback(error.traceback, most=_LONGEST_TRACEBACK))
        if error and error.traceback
        else None,
        _output(output, rank),
    )


def _output(path: Path, rank: int) -> Html | None:
    """The end of what a rank has printed; None if it has printed nothing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _OUTPUT_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:  # it never came so far, or may not be read
        return None
    if not text.strip():
        return None
    before = f"({size - _OUTPUT_BYTES:,} bytes before are left out) …" if size > _OUTPUT_BYTES else ""
    heading = element("h3", f"What rank {rank} printed last")
    return join(heading, element("pre", before + text.rstrip("\n"), tabindex=0, class_="scroll"))
