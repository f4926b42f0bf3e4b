"""References to secrets: where they may stand, what they resolve to, and that nobody is shown the value."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import jsonschema
import pytest
from annotated_types import MinLen

from hostcore.errors import all_errors, described
from hostcore.job.differences import job_differences
from hostcore.job.forms import json_schema, structure
from hostcore.job.load import load_job
from hostcore.job.rules import keep_secrets
from hostcore.job.schema import job_schema
from hostcore.job.spec import job_view
from hostcore.secrets.reference import SecretText, remember_secrets, resolve_secrets
from hostcore.secrets.scrub import forget_all, known, scrub
from hostcore_hookspecs import HostcoreError, Secret

VALUE = "correct-horse-battery"
JOB: dict[str, Any] = {"trainer": "x", "max_steps": 1}
TOKEN = {"$secret": "env:TOKEN"}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget_all()
    monkeypatch.setenv("TOKEN", VALUE)
    yield
    forget_all()


def errors_of(do: Any, *arguments: Any, **named: Any) -> list[HostcoreError]:
    with pytest.raises(HostcoreError) as caught:
        do(*arguments, **named)
    return list(all_errors(caught.value))


def told(errors: list[HostcoreError]) -> list[tuple[str | None, str]]:
    return [(error.pointer, error.code) for error in errors]


PLACES: list[tuple[str, dict[str, Any]]] = [
    ("/hyperparams/token", {"hyperparams": {"token": TOKEN}}),
    ("/hyperparams/deep/0/token", {"hyperparams": {"deep": [{"token": TOKEN}]}}),
    ("/dataset/key", {"dataset": {"source": "s", "key": TOKEN}}),
    ("/callbacks/0/key", {"callbacks": [{"use": "a", "key": TOKEN}]}),
    ("/reporters/0/key", {"reporters": [{"use": "a", "required": True, "key": TOKEN}]}),
    ("/uploaders/0/storage_options/key", {"uploaders": [{"use": "a", "storage_options": {"key": TOKEN}}]}),
    ("/launcher/key", {"launcher": {"use": "local", "key": TOKEN}}),
]


@pytest.mark.parametrize(("pointer", "keys"), PLACES, ids=[pointer for pointer, _ in PLACES])
def test_a_reference_may_stand_in_the_settings_of_every_plugin_and_stays_one(
    pointer: str, keys: dict[str, Any]
) -> None:
    job = load_job({**JOB, **keys}).to_json()
    found: Any = job
    for token in pointer.split("/")[1:]:
        found = found[int(token) if isinstance(found, list) else token]
    assert found == TOKEN
    assert VALUE not in json.dumps(job)


@pytest.mark.parametrize(
    ("pointer", "keys"),
    [
        ("/trainer", {"trainer": TOKEN}),
        ("/hyperparams", {"hyperparams": TOKEN}),
        ("/labels/team", {"labels": {"team": TOKEN}}),
        ("/dataset/batch_size", {"dataset": {"source": "s", "batch_size": TOKEN}}),
        ("/callbacks/0/use", {"callbacks": [{"use": TOKEN}]}),
        ("/uploaders/0/required", {"uploaders": [{"use": "a", "required": TOKEN}]}),
    ],
)
def test_elsewhere_it_is_an_error_that_says_so(pointer: str, keys: dict[str, Any]) -> None:
    (error,) = errors_of(load_job, {**JOB, **keys})
    assert (error.pointer, error.code) == (pointer, "secret.misplaced")
    assert "settings of a plugin" in error.message


@pytest.mark.parametrize("reference", ["TOKEN", "vault:token", "env:", ":", 7, None, ["env:TOKEN"]])
def test_what_is_no_reference_is_told_when_the_job_is_loaded(reference: Any) -> None:
    for more in ({}, {"default": "x"}):
        (error,) = errors_of(load_job, {**JOB, "hyperparams": {"token": {"$secret": reference, **more}}})
        assert (error.pointer, error.code) == ("/hyperparams/token", "secret.reference")
        assert more or '{"$secret": "env:NAME"}' in error.message
    (error,) = errors_of(load_job, {**JOB, "hyperparams": {"token": {**TOKEN, "default": "x"}}})
    assert error.hint == 'nothing else may stand beside "$secret"'


def test_a_relative_file_starts_at_the_job_and_plugins_see_references(tmp_path: Path) -> None:
    job = load_job({**JOB, "hyperparams": {"token": {"$secret": "file:keys/token"}}}, job_dir=tmp_path)
    assert job_view(job).hyperparams["token"] == {"$secret": f"file:{tmp_path}/keys/token"}


class TestResolving:
    def test_gives_the_value_and_remembers_it(self) -> None:
        found = resolve_secrets({"a": TOKEN, "b": [TOKEN, 1], "c": "plain"})
        assert found == {"a": VALUE, "b": [VALUE, 1], "c": "plain"}
        assert isinstance(found["a"], SecretText)
        assert scrub(f"<{VALUE}>") == "<********>"

    @pytest.mark.parametrize(
        ("content", "value"), [(f"{VALUE}\n", VALUE), (f"{VALUE}\r\n", VALUE), (f"{VALUE}\n\n", f"{VALUE}\n")]
    )
    def test_takes_one_newline_from_the_end_of_a_file(self, content: str, value: str, tmp_path: Path) -> None:
        (tmp_path / "token").write_bytes(content.encode())
        assert resolve_secrets({"$secret": f"file:{tmp_path}/token"}) == value

    def test_tells_everything_that_is_wrong_with_its_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EMPTY", "")
        settings = {
            "a": {"$secret": "env:TOKNE"},
            "b": [{"$secret": "env:EMPTY"}],
            "c/d": {"$secret": "env:UNHEARD_OF"},
        }
        errors = errors_of(resolve_secrets, settings, "/reporters/1")
        assert told(errors) == [
            ("/reporters/1/a", "secret.unset"),
            ("/reporters/1/b/0", "secret.value"),
            ("/reporters/1/c~1d", "secret.unset"),
        ]
        assert errors[0].hint == 'did you mean "TOKEN"?'
        assert "export UNHEARD_OF=" in (errors[2].hint or "")

    def test_tells_what_is_wrong_with_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "empty").write_text("\n")
        (tmp_path / "large").write_bytes(b"x" * 70_000)
        (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd\xfc\xfb")
        os.mkfifo(tmp_path / "pipe")
        expected = {
            "missing": "cannot be read: no such file or directory",
            "folder": "is a folder",
            "empty": "is empty",
            "large": "larger than 64 KB",
            "binary": "not UTF-8",
            "pipe": "not a regular file",
        }
        for name, what in expected.items():
            (error,) = errors_of(resolve_secrets, {"key": {"$secret": f"file:{tmp_path}/{name}"}})
            assert what in error.message, name
            assert error.pointer == "/key"

    @pytest.mark.parametrize("value", ["   ", "1234567", " spaced ", "metrics"])
    def test_refuses_what_cannot_be_hidden(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WEAK", value)
        (error,) = errors_of(resolve_secrets, {"key": {"$secret": "env:WEAK"}})
        assert error.code == "secret.value"
        assert known() == ()

    def test_passes_over_what_it_cannot_find_when_it_only_remembers(self) -> None:
        remember_secrets({"a": {"$secret": "env:UNHEARD_OF"}, "b": TOKEN, "c": {"$secret": 3}})
        assert known() == (VALUE,)


def test_a_value_that_stands_openly_in_the_job_or_its_paths_is_refused_with_both_places() -> None:
    spec = load_job({**JOB, "labels": {"note": f"it is {VALUE}"}, "hyperparams": {"token": TOKEN}})
    (error,) = errors_of(keep_secrets, spec)
    assert (error.pointer, error.code) == ("/hyperparams/token", "secret.open")
    assert "/labels/note" in error.message
    assert VALUE not in described(error)
    of_profile = load_job({**JOB, "profiles": {"a": {"owner": VALUE}}, "hyperparams": {"token": TOKEN}})
    (error,) = errors_of(keep_secrets, of_profile, f"/home/{VALUE}/runs")
    assert error.code == "secret.open"
    assert VALUE not in described(error)
    keep_secrets(of_profile, "/runs")  # the profile is not used


@attrs.frozen(kw_only=True)
class Inner:
    password: Secret


@attrs.frozen(kw_only=True)
class Settings:
    token: Secret
    user: str = "me"
    maybe: Secret | None = None
    either: str | Secret = "x"
    bounded: Annotated[str, MinLen(30)] = "x" * 30
    number: int = 1
    mode: Literal["a", "b"] = "a"
    path: Path = Path("/x")
    several: tuple[str, ...] = ()
    options: dict[str, Any] = attrs.field(factory=dict)
    inner: Inner | None = None


def structured(**settings: Any) -> Settings:
    return structure(Settings, resolve_secrets(settings), pointer="/s")


class TestStructuring:
    def test_gives_a_secret_to_a_field_of_that_type_and_text_to_any_other(self) -> None:
        made = structured(
            token=TOKEN,
            user=TOKEN,
            maybe=TOKEN,
            either=TOKEN,
            several=[TOKEN],
            options={"key": TOKEN, "list": [TOKEN]},
            inner={"password": TOKEN},
        )
        assert made.token == made.maybe == made.either == Secret(VALUE)
        assert made.inner is not None
        assert VALUE not in repr((made.token, made.maybe, made.either, made.inner))
        assert made.inner.password.value == VALUE
        assert (made.user, made.several, made.options) == (VALUE, (VALUE,), {"key": VALUE, "list": [VALUE]})
        assert {type(text) for text in (made.user, made.several[0], made.options["key"], made.options["list"][0])} == {
            str
        }

    def test_refuses_the_secret_itself_without_repeating_it(self) -> None:
        (error,) = errors_of(structured, token="literally-in-the-job")
        assert (error.pointer, error.code) == ("/s/token", "value.type")
        assert error.message == 'expected a reference to a secret, such as {"$secret": "env:NAME"}, found a string'
        assert "literally-in-the-job" not in described(error)
        assert "environment variable" in (error.hint or "")

    def test_tells_what_a_value_should_have_been_without_showing_it(self) -> None:
        errors = errors_of(structured, token=TOKEN, number=TOKEN, mode=TOKEN, bounded=TOKEN, several=TOKEN, inner=TOKEN)
        assert [error.pointer for error in errors] == ["/s/number", "/s/mode", "/s/bounded", "/s/several", "/s/inner"]
        for error in errors:
            assert VALUE not in described(error)
            assert VALUE[:6] not in described(error)
        assert errors[0].message == 'expected an integer, found "********"'


def test_the_schema_of_settings_takes_a_reference_for_a_secret_and_a_job_for_any_string() -> None:
    schema = job_schema({"mine": ("trainer", json_schema(Settings))})
    job = {"trainer": "mine", "max_steps": 1}
    good = {"token": TOKEN, "user": TOKEN, "several": ["a", TOKEN], "inner": {"password": TOKEN}}
    jsonschema.validate({**job, "hyperparams": good}, schema)
    for bad in ({"token": "text"}, {"token": {"$secret": "vault:x"}}, {"token": TOKEN, "number": TOKEN}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**job, "hyperparams": bad}, schema)


def test_the_identity_of_a_job_is_its_references(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(name: str) -> Any:
        return load_job({**JOB, "hyperparams": {"token": {"$secret": f"env:{name}"}}})

    before = job("TOKEN")
    monkeypatch.setenv("TOKEN", "another-value-now")
    assert job_differences(before, job("TOKEN")) == []
    (difference,) = job_differences(before, job("OTHER"))
    assert str(difference) == "/hyperparams/token: the secret env:TOKEN -> the secret env:OTHER"
