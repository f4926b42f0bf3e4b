"""Errors of the host itself."""

from collections.abc import Sequence

from hostcore_hookspecs.errors import HostcoreError


class Errors(HostcoreError):
    """Several errors found together: everything that is wrong with a job, at once.

    :param errors: At least one.
    """

    code = "several"

    def __init__(self, errors: Sequence[HostcoreError]) -> None:
        super().__init__("\n".join(error.message for error in errors))
        self.errors = tuple(errors)


def all_errors(error: HostcoreError) -> tuple[HostcoreError, ...]:
    """The errors behind an error: itself, unless it is several."""
    return error.errors if isinstance(error, Errors) else (error,)
