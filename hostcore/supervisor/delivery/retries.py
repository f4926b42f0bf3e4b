"""The first retries of what has failed: a few, within a second or two, before an outage is declared."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from hostcore_hookspecs.errors import FatalError, TransientError

T = TypeVar("T")

#: The least time between two retries, doubled each time.
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 1.0
_JITTER_SECONDS: Final = 0.1


@attrs.frozen(kw_only=True)
class QuickRetries:
    """How often, and for how long. The first retry comes at once."""

    #: 0: none.
    retries: int = 4
    #: No retry begins later than that after the first.
    seconds: float = 2.0


def call_with_retries(call: Callable[..., T], *arguments: Any, limits: QuickRetries) -> T:
    """Call, and call again if it raises, with short waits in between.

    :raises BaseException: What it raised last. A :class:`FatalError` at once, and so what asks to be left alone for
        longer than these waits.
    """
    try:
        return call(*arguments)
    except BaseException as error:
        if not limits.retries or not _is_worth_another(error):
            raise
    stamina = _stamina()
    for attempt in stamina.retry_context(
        on=_is_worth_another,
        attempts=limits.retries,
        timeout=limits.seconds,
        wait_initial=_FIRST_WAIT_SECONDS,
        wait_max=_LONGEST_WAIT_SECONDS,
        wait_jitter=_JITTER_SECONDS,
    ):
        with attempt:
            return call(*arguments)
    raise AssertionError("stamina raises what the last attempt has raised")


def _is_worth_another(error: BaseException) -> bool:
    if isinstance(error, TransientError) and (seconds := error.retry_after_seconds):
        return seconds <= _FIRST_WAIT_SECONDS
    return not isinstance(error, FatalError)


def _stamina() -> Any:
    """Imported by the first failure. What it tells of every retry, the host tells once, as an event.

    By itself it tells through structlog or logging, which print where nobody has set them up. In a program that uses
    stamina already, that is the program's business.
    """
    is_first = "stamina" not in sys.modules
    import stamina

    if is_first:
        stamina.instrumentation.set_on_retry_hooks([])
    return stamina
