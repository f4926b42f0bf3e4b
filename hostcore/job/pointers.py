"""JSON pointers (RFC 6901), and errors that travel up a document and gain theirs on the way."""

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from hostcore.errors import Errors, all_errors
from hostcore_hookspecs.errors import HostcoreError

P = ParamSpec("P")
T = TypeVar("T")


def escaped(token: str) -> str:
    """One reference token of a pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def tokens(pointer: str) -> list[str]:
    """The keys and indices of a pointer, outermost first."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def dotted(pointer: str) -> str:
    """A pointer as a person gives it to ``--set``: ``dataset.batch_size``; itself if a key has a dot in it."""
    return pointer if "." in pointer or "~" in pointer else pointer.removeprefix("/").replace("/", ".")


def at_or_below(pointer: str, place: str) -> bool:
    """Return True for a pointer to a place or inside it."""
    return pointer == place or pointer.startswith(f"{place}/")


def moved(error: HostcoreError, prefix: str) -> tuple[HostcoreError, ...]:
    """The errors behind an error, with a prefix in front of their pointers.

    The pointers of plugins (:class:`InvalidSettings`) may lack the first slash.
    """
    for single in all_errors(error):
        inner = single.pointer or ""
        single.pointer = prefix + (inner if inner.startswith("/") or not inner else f"/{inner}")
    return all_errors(error)


class Problems:
    """Gathers the errors of the parts of a value, so that all are reported at once."""

    def __init__(self) -> None:
        #: What was gathered so far.
        self.errors: list[HostcoreError] = []

    def gather(self, token: str, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call something for the part at a key or index; None, and its errors kept, if it raises them."""
        try:
            return make(*args, **kwargs)
        except HostcoreError as error:
            self.add(error, token)
            return None

    def add(self, error: HostcoreError, token: str) -> None:
        """Keep an error of the part at a key or index."""
        self.errors.extend(moved(error, f"/{escaped(token)}"))

    def extend(self, errors: Iterable[HostcoreError]) -> None:
        """Keep errors whose pointers start at the whole value."""
        self.errors.extend(errors)

    def check(self) -> None:
        """Raise what was gathered.

        :raises Errors: If there is anything.
        """
        if self.errors:
            raise Errors(self.errors)
