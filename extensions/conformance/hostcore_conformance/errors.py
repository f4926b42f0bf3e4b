"""Errors of a check: a plugin does not hold, or cannot be checked."""

from hostcore_hookspecs.errors import HostcoreError


class ConformanceError(AssertionError):
    """A plugin violates the contract.

    :param expected: What should have been seen.
    :param got: What was seen, with the names and numbers that prove it.
    :param fix: What the plugin's author is to do.
    """

    def __init__(self, *, expected: str, got: str, fix: str) -> None:
        super().__init__(f"expected {expected}\n     got {got}\n     fix {fix or 'see above'}")
        self.expected = expected
        self.got = got
        self.fix = fix

    @property
    def message(self) -> str:
        """The same in one line."""
        stop = "" if self.got.endswith((".", "?", "!")) else "."
        return " ".join(f"expected {self.expected}; got {self.got}{stop} {self.fix}".split())


class NotApplicable(Exception):
    """A check finds that it has nothing to ask of this plugin.

    :param reason: Why, without a full stop: ``it declares no settings``.
    :param wants_example: Whether an example or a harness of the author's would make it apply: such a plugin is not
        certified.
    """

    def __init__(self, reason: str, *, wants_example: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wants_example = wants_example


class NoExample(NotApplicable):
    """There is no example of the plugin's use at all, without which it cannot be made or run.

    :param reason: What there is not, and how to give it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, wants_example=True)


class InvalidExample(HostcoreError):
    """A part of an example (job, harness, known failures) cannot be used."""

    code = "conformance.example"
