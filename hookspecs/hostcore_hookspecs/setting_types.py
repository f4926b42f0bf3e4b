"""Types that a setting of a plugin may have beside those of JSON: secrets, places, and objects of the user's code."""

import importlib
from typing import Annotated, Any, Final, Generic, TypeVar

import attrs

#: Names that are joined by dots.
DOTTED: Final = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"

T_co = TypeVar("T_co", covariant=True)

_HIDDEN: Final = "********"


class Secret:
    """A setting that is never shown: ``token: Secret``.

    In a job it is written as a reference, ``{"$secret": "env:NAME"}`` or ``{"$secret": "file:/path"}``. A field of type
    ``str`` takes such a reference, too; a field of type ``Secret`` takes nothing else, so that no job file holds the
    value itself, and its ``repr`` does not show it.

    :param value: What must not be seen.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """Secret text. Take it at the last moment."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN!r})"

    def __str__(self) -> str:
        """Stars."""
        return _HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled: it would be readable in what is written")


@attrs.frozen
class Place:
    """Mark of a setting that may hold a URI or an absolute path: ``Annotated[Mapping[str, Any], Place()]``.

    A job that comes over HTTP may name a place in such a setting, and in one of type ``Path``. Elsewhere, a string that
    looks like a place is refused. The host checks that the place is open to jobs; the setting's type stays what it is.
    """


#: A string that may hold a URI or an absolute path: ``url: Uri``. See :class:`Place`.
Uri = Annotated[str, Place()]


@attrs.frozen
class ImportPath(Generic[T_co]):
    """A setting that names an object of the user's code: ``module: ImportPath[type]``.

    A job writes ``"module": "lit_models:Auto"``. It is found as a plugin's import path is: what is installed comes
    first, then the job file's folder. The host imports it in the worker before the run starts, and refuses a path that
    names nothing, or something else than the annotation asks for:

    ======================================  ===========================================
    annotation                              asks for
    ======================================  ===========================================
    ``ImportPath``                          any object
    ``ImportPath[type]``                    a class
    ``ImportPath[type[Model]]``             ``Model`` or a subclass of it
    ``ImportPath[Callable[..., object]]``   what can be called: a function, a class, …
    ``ImportPath[Model]``                   an instance of ``Model``
    ======================================  ===========================================

    For settings of trainers, data sources and callbacks. Plugins of other kinds run outside the worker, which alone
    imports code from the job's folder.

    :param path: ``module:symbol``; both may have dots in them.
    """

    path: str = attrs.field(validator=attrs.validators.matches_re(f"{DOTTED}:{DOTTED}"))

    def load(self) -> T_co:
        """Import the object. In a run, the modules are imported by then, and this takes a few microseconds.

        :raises ImportError: There is no such module; in a run, that was found before it started.
        :raises AttributeError: The module has no such symbol; likewise.
        """
        module, _, symbol = self.path.partition(":")
        found: Any = importlib.import_module(module)
        for name in symbol.split("."):
            found = getattr(found, name)
        return found  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """The path, as the job has it."""
        return self.path
