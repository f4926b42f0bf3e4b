"""Resolvers are asked in the order of the job; the first answer counts, and what they raise is one clear error."""

from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore_hookspecs.errors import HostcoreError


def error_of(caught: "pytest.ExceptionInfo[Errors]") -> HostcoreError:
    (error,) = caught.value.errors
    return error


def test_the_first_resolver_that_knows_a_reference_decides_unless_it_is_a_uri(
    fetch: Any, memory: Any, resolver: Any
) -> None:
    """Under ``uri`` nobody is asked; a URI that nobody knows is taken as it is; who is asked knows input and job."""
    for place in ("first/m", "second/m", "mine", "base/me"):
        memory.pipe(f"/{place}", place.encode())
    names = [
        resolver("nobody", "return None"),
        resolver(
            "one", "return {'org/a': 'memory://first/m', 'own': f'memory://{ctx.input_name}/{ctx.job.owner}'}.get(ref)"
        ),
        resolver("two", "return 'memory://second/m' if ref == 'org/b' else None"),
        resolver("broken", "assert ref == 'memory://mine'"),
    ]
    inputs = {"a": "org/a", "b": {"ref": "org/b"}, "base": "own", "c": "memory://mine", "d": {"uri": "memory://mine"}}
    fetched = fetch(inputs, resolvers=names, owner="me")
    contents = {name: path.read_text() for name, path in fetched.items()}
    assert contents == {"a": "first/m", "b": "second/m", "base": "base/me", "c": "mine", "d": "mine"}


def test_a_reference_that_nobody_knows_names_who_was_asked(fetch: Any, resolver: Any) -> None:
    names = [resolver("one", "return None"), resolver("two", "return None")]
    with pytest.raises(Errors, match="'org/model'") as caught:
        fetch({"base_model": "org/model"}, resolvers=names)
    error = error_of(caught)
    assert (error.code, error.pointer) == ("input.unresolved", "/inputs/base_model")
    assert "one (one-dist" in str(error.hint)
    assert "two (two-dist" in str(error.hint)
    with pytest.raises(Errors) as caught:
        fetch({"base_model": "org/model"})
    assert 'the job lists no "resolvers"' in str(error_of(caught).hint)


@pytest.mark.parametrize("body", ["raise ConnectionError('hub down')", "raise SystemExit('hub down')"])
def test_a_resolver_that_raises_is_named_with_its_own_traceback(fetch: Any, resolver: Any, body: str) -> None:
    with pytest.raises(Errors, match="hub down") as caught:
        fetch({"m": "org/model"}, resolvers=[resolver("nobody", "return None"), resolver("hub", body)])
    error = error_of(caught)
    assert (error.code, error.pointer) == ("plugin.resolve", "/inputs/m")
    assert str(error.plugin).startswith("hub (hub-dist")
    assert "hub_resolver.py" in getattr(error, "traceback", "")


def test_an_error_that_a_resolver_raises_on_purpose_keeps_its_words(fetch: Any, resolver: Any) -> None:
    body = "from hostcore_hookspecs import FatalError; raise FatalError('no such model', hint='look at the hub')"
    with pytest.raises(Errors) as caught:
        fetch({"m": "org/model"}, resolvers=[resolver("hub", body)])
    error = error_of(caught)
    assert (error.message, error.hint, error.pointer) == ("no such model", "look at the hub", "/inputs/m")
    assert str(error.plugin).startswith("hub (hub-dist")


@pytest.mark.parametrize("answer", ["'models/x'", "3", "b'memory://a'"])
def test_an_answer_that_is_no_place_is_refused(fetch: Any, resolver: Any, answer: str) -> None:
    with pytest.raises(Errors) as caught:
        fetch({"m": "org/model"}, resolvers=[resolver("hub", f"return {answer}")])
    assert (error_of(caught).code, error_of(caught).pointer) == ("input.unresolved", "/inputs/m")
    assert "returns a URI, an absolute path, or None" in str(error_of(caught).hint)


def test_secrets_in_storage_options_and_uris_are_resolved_late(
    fetch: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/signed-0123456789", b"x")
    monkeypatch.setenv("SIGNED", "memory://signed-0123456789")
    one = {"uri": {"$secret": "env:SIGNED"}}
    assert fetch({"m": one})["m"].read_bytes() == b"x"
    monkeypatch.delenv("SIGNED")
    with pytest.raises(Errors) as caught:
        fetch({"m": one, "n": {"uri": "memory://x", "storage_options": {"key": {"$secret": "env:SIGNED"}}}})
    pointers = {error.pointer for error in caught.value.errors}
    assert pointers == {"/inputs/m/uri", "/inputs/n/storage_options/key"}


@pytest.mark.parametrize(
    ("value", "pointer", "code"),
    [
        ({}, "/inputs/m", "key.missing"),
        ({"ref": "a", "uri": "b"}, "/inputs/m", "key.missing"),
        ({"uri": "a", "sha256": "x"}, "/inputs/m/sha256", "value.range"),
        ({"uri": "a", "md5": "x"}, "/inputs/m/md5", "key.unknown"),
        (3, "/inputs/m", "value.type"),
        ("", "/inputs/m", "value.range"),
    ],
)
def test_an_input_of_the_wrong_form_is_an_error_of_the_job(fetch: Any, value: Any, pointer: str, code: str) -> None:
    with pytest.raises(Errors) as caught:
        fetch.spec({"m": value})
    assert (error_of(caught).pointer, error_of(caught).code) == (pointer, code)
    with pytest.raises(Errors) as caught:
        fetch.spec({"weights": "a"}, weights="b")
    assert error_of(caught).pointer == "/inputs/weights", "they exclude each other"
