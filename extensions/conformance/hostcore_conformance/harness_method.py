"""What a harness can do, and what a check says of one that cannot."""

from typing import Any

from hostcore_conformance.errors import NotApplicable
from hostcore_conformance.subject import Subject


def harness_method(subject: Subject, name: str, purpose: str) -> Any:
    """A method of the author's harness.

    :param name: Such as ``received``. A harness that has None in its place says that its other side cannot do this: a
        local file does not hang.
    :param purpose: What for: ``so that the kit can see what has arrived``.
    :raises NotApplicable: It has none.
    """
    harness = subject.harness
    if harness is None:
        raise NotApplicable(
            f"there is no harness: give an object with {name}(), {purpose}"
            f' (harness = "tests/harness.py:Harness" in [tool.hostcore.conformance.{subject.name}])',
            wants_example=True,
        )
    if not hasattr(harness, name):
        raise NotApplicable(
            f"the harness has no {name}(), {purpose}; write `{name} = None` in it if there can be none",
            wants_example=True,
        )
    found = getattr(harness, name)
    if found is None:
        raise NotApplicable(f"the harness says that there is no {name}()")
    return found
