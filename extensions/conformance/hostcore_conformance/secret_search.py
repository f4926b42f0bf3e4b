"""The secrets of an example's settings, and whether a text shows one."""

from collections.abc import Iterator, Mapping
from typing import Any

from hostcore.job.pointers import escaped
from hostcore.secrets.reference import SecretText, resolve_secrets
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError


def no_secret(subject: Subject) -> str | None:
    """Return the reason why a check of secrets does not apply; None if it does."""
    return None if secrets_of(subject) else "its example has no settings with a secret"


def secrets_of(subject: Subject) -> Mapping[str, str]:
    """The secrets that the settings refer to, by their place."""
    return dict(_found(resolve_secrets(subject.settings), ""))


def _found(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, SecretText):
        yield at, str(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _found(item, f"{at}/{escaped(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _found(item, f"{at}/{index}")


def require_hidden(secrets: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """See that no secret is in any of some texts.

    :param secrets: By their place in the settings.
    :param texts: By what they are: ``what has arrived``.
    :raises ConformanceError: One is.
    """
    for what, text in texts.items():
        for at, secret in secrets.items():
            if secret in text:
                place = text.index(secret)
                around = text[max(0, place - 60) : place]
                raise ConformanceError(
                    expected=f"{what} without the secret in {at}",
                    got=f"the secret after the words: {around.strip()} ********",
                    fix="Write a message of your own that repeats no settings, no URL with its query, and no headers.",
                )


def all_that_it_says(error: BaseException | None) -> str:
    """The texts of an exception and of those that it came from."""
    said = []
    while error is not None:
        said.append(str(error))
        if isinstance(error, HostcoreError):
            said += [error.hint or "", error.file or ""]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(said)
