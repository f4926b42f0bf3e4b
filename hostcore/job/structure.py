"""Plain JSON into attrs classes: strictly, and with all errors at once."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast

from hostcore.errors import Errors
from hostcore.job.forms import form_of
from hostcore.job.forms.form import CheckObject, Reading, unchecked
from hostcore.job.pointers import moved
from hostcore_hookspecs.errors import HostcoreError

__all__ = ["CheckObject", "structure", "unchecked"]

T = TypeVar("T")


def structure(
    cls: type[T],
    value: Any,
    *,
    pointer: str = "",
    base_dir: Path | None = None,
    elsewhere: Collection[str] = (),
    check_object: CheckObject = unchecked,
) -> T:
    """Make an instance of an attrs class from plain JSON.

    Nothing is coerced: no string for a number, no bool for a number, no string for a list; an integer does for a float.
    Bounds in ``Annotated`` hold, unknown keys are refused, validators and ``__attrs_post_init__`` run.

    :param cls: An attrs class, or any annotation that such a class may have.
    :param value: What a JSON parser returns; the settings of a plugin with its secrets resolved.
    :param pointer: The place of the value in the job, for errors.
    :param base_dir: Where relative ``Path`` values start. None: they stay as they are.
    :param elsewhere: Keys of the same object that others read; suggested for a mistyped key.
    :param check_object: Called for every ``ImportPath``; its errors have no pointer yet.
    :raises Errors: With everything that is wrong, in the order of the document.
    """
    reading = Reading(base_dir=base_dir, root=value, elsewhere=elsewhere, check_object=check_object)
    try:
        return cast("T", form_of(cls).structure(value, reading))
    except HostcoreError as error:
        raise Errors(moved(error, pointer)) from error.__cause__
