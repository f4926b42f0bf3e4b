"""Errors as notebooks show them."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostcore.errors import all_errors, described
from hostcore.secrets.scrub import scrub
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import HostcoreError


@contextmanager
def errors_in_plain_words() -> Iterator[None]:
    """Let a notebook show errors of a function as a command prints them, in place of the host's traceback."""
    try:
        yield
    except HostcoreError as error:
        shown = [
            text for one in all_errors(error) for text in (described(one), getattr(one, "traceback", None)) if text
        ]
        # IPython asks the exception for its traceback.
        vars(error)["_render_traceback_"] = lambda: [visible(scrub(text.rstrip())) for text in shown]
        raise
