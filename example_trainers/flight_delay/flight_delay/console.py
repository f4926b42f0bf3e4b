"""Exit of the package's two commands."""

import sys
from collections.abc import Callable

from hostcore_hookspecs import HostcoreError


def exit_code_of(command: Callable[[], None]) -> int:
    """Run a command; explain on standard error what the user can mend, without a traceback.

    :return: 0, or 2 after such an error.
    """
    try:
        command()
    except HostcoreError as error:
        place = f"{error.file}: " if error.file else ""
        print(f"error: {place}{error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2
    return 0
