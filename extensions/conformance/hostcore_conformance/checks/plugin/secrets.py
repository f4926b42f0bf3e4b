"""That a plugin does not show the secrets that it is given."""

import contextlib
import os
import re
import secrets as random_tokens
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore.job.forms import Key
from hostcore.secrets.reference import KEY, is_reference
from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.declared import keys_of, settings_class_of
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import Secret

_VARIABLE: Final = "HOSTCORE_CONFORMANCE_SECRET"
#: Names of settings that hold secrets; a ``pad_token`` is none, nor is a ``token_column``.
_SECRET_NAME: Final = re.compile(
    r"(.*_)?(password|passwd|passphrase|secret|credentials?|api_?key)"
    r"|((access|auth|api|bearer|refresh|secret|service|account|hf|hub)_)?token"
    r"|(.*_)?(private|secret|access|account)_key"
)


@check("plugin.secrets_hidden", requires=("plugin.constructs",))
def secrets_hidden(subject: Subject) -> None:
    """Neither the component, nor its settings, nor an error of its constructor shows a secret.

    Every setting of type Secret, and every one that the example gives as {"$secret": ...}, gets a made-up value; then
    repr() and str() of the instance and of its settings are searched for it, and, if the constructor raises, the
    exception. These end up in logs, notebooks and error trackers that the host's own scrubbing does not reach. A field
    of type Secret is never shown by attrs; a plain str is. Usual causes: an attrs class as component that keeps
    token.value in a field, a message that quotes the token that was wrong. Take .value at the last moment.

    Not asked of a plugin without such settings.
    """
    reference = {KEY: f"env:{_VARIABLE}"}
    examples = list(_with_secrets(subject, reference))
    if not examples:
        raise NotApplicable("none of its settings is a secret")
    with _made_up() as value:
        constructed = [_shows_none(subject, settings, value) for settings in examples]
    if not any(constructed):
        raise NotApplicable("it cannot be constructed with made-up secrets")


def _shows_none(subject: Subject, settings: Mapping[str, Any], value: str) -> bool:
    """See that a secret is not shown. Whether the plugin takes these settings."""
    try:
        component = subject.component(settings)
    except HostcoreError as error:
        _require_hidden({"the exception of the constructor": "\n".join(_chain(error))}, value)
        return False
    shown = {
        f"{function.__name__}() of {name}": function(one)
        for function in (repr, str)
        for name, one in (("the component", component.instance), ("its settings", component.settings))
    }
    _require_hidden(shown, value)
    return True


@check("plugin.secret_fields", level="should", requires=("plugin.resolves",))
def secret_fields(subject: Subject) -> None:
    """A setting that is named like a secret is declared as one.

    A field called password, api_key, auth_token, client_secret or the like and annotated as str takes the secret
    itself, so that sooner or later one stands in a job file, in the run directory and in the repository. Annotated as
    Secret (from hostcore_hookspecs), it takes only references, {"$secret": "env:NAME"}, and is never shown.
    """
    fields = keys_of(settings_class_of(subject))
    plain = [name for name, key in fields.items() if _SECRET_NAME.fullmatch(name.lower()) and str in _types(key)]
    if plain:
        raise ConformanceError(
            expected="that settings with secrets are of type Secret",
            got=f"{', '.join(plain)} may be written into a job as plain text",
            fix=f"Write {plain[0]}: Secret, or {plain[0]}: Secret | None = None, and use settings.{plain[0]}.value.",
        )


@contextlib.contextmanager
def _made_up() -> Iterator[str]:
    value = f"conformance-{random_tokens.token_hex(12)}"
    os.environ[_VARIABLE] = value
    try:
        yield value
    finally:
        del os.environ[_VARIABLE]


def _with_secrets(subject: Subject, reference: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The example's settings with a made-up secret in the place of each of its own, and in each setting for one."""

    def replaced(value: Any) -> Any:
        if is_reference(value):
            return reference
        if isinstance(value, Mapping):
            return {key: replaced(item) for key, item in value.items()}
        return [replaced(item) for item in value] if isinstance(value, list | tuple) else value

    own = replaced(subject.settings)
    if own != subject.settings:
        yield own
    for name, key in keys_of(settings_class_of(subject)).items():
        if Secret in _types(key):  # one at a time: a token and a password may exclude each other
            yield {**own, name: reference}


def _types(key: Key) -> list[Any]:
    return [arm.type for arm in key.form.arms]


def _chain(error: BaseException) -> Iterator[str]:
    following: BaseException | None = error
    while following is not None:
        yield f"{following} {following!r}"
        following = following.__cause__ or following.__context__


def _require_hidden(shown: Mapping[str, str], value: str) -> None:
    places = [place for place, text in shown.items() if value in text]
    if places:
        raise ConformanceError(
            expected="that a secret is not shown",
            got=f"{' and '.join(places)} shows it",
            fix="Keep the Secret itself, not its value; or mark the field attrs.field(repr=False); quote no secret.",
        )
