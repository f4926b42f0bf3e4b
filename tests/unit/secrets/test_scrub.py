"""Values of secrets do not leave a process, in every notation that is promised and in however many pieces."""

import base64
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from hostcore.events.strict_json import dump
from hostcore.secrets.output import ScrubbedOutput
from hostcore.secrets.scrub import HIDDEN, SecretFilter, forget_all, known, remember, scrub, scrub_bytes, when_known
from hostcore_hookspecs.errors import HostcoreError

AWKWARD = [
    "plain-token-2718",
    "both\"and'inside",
    "back\\slash\\inside",
    "tab\tümläut-\N{KEY}-密码",
    "per%cent sp ace & <angle> + plus/slash?query=1#x",
    "  spaces around it  ",
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END KEY-----",
]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def notations(value: str) -> list[str]:
    return [
        value,
        value.strip(),
        *value.splitlines(),
        repr(value),
        json.dumps({"key": value}),
        json.dumps({"key": value}, ensure_ascii=False),
        quote(value),
        quote(value, safe=""),
        urlencode({"token": value}),
        *(base64.b64encode(f"{user}{value}".encode()).decode() for user in ("", "a:", "me:", "you:")),
    ]


@pytest.mark.parametrize("value", AWKWARD)
def test_a_value_is_hidden_in_every_notation(value: str) -> None:
    remember(value)
    for text in notations(value):
        hidden = scrub(f"before {text} behind")
        assert HIDDEN in hidden, text
        assert max(value.split(), key=len) not in hidden
        assert (hidden[:7], hidden[-7:]) == ("before ", " behind")
        assert scrub_bytes(f"before {text} behind".encode()) == hidden.encode()


def test_json_is_hidden_string_by_string_and_stays_json() -> None:
    remember("17632041")
    read = json.loads(dump({"name of 17632041": 17632041, "nested": [{"deep": ["at 17632041", None, True]}]}))
    assert read == {f"name of {HIDDEN}": 17632041, "nested": [{"deep": [f"at {HIDDEN}", None, True]}]}


@pytest.mark.parametrize("value", ["", "1234567", " 1234567 \n", "not-utf-8-\udcff"])
def test_a_value_that_cannot_be_hidden_is_refused(value: str) -> None:
    with pytest.raises(HostcoreError, match="the password, a secret, ") as raised:
        remember(value, "the password")
    assert (raised.value.code, known()) == ("secret.value", ())


def test_a_secret_inside_another_hides_both() -> None:
    remember("inner-secret")
    remember("outer-inner-secret-outer")
    assert scrub("a outer-inner-secret-outer b inner-secret c") == f"a {HIDDEN} b {HIDDEN} c"


def test_whoever_waits_for_a_first_secret_is_called_once() -> None:
    called: list[int] = []
    when_known(lambda: called.append(1))
    assert called == []
    remember("first-secret")
    remember("second-secret")
    when_known(lambda: called.append(2))
    assert called == [1, 2]


class TestPieces:
    @pytest.mark.parametrize("value", AWKWARD)
    def test_a_secret_cut_anywhere_is_hidden(self, value: str) -> None:
        remember(value)
        raw = f"before {value} behind\n".encode()
        for cut in range(len(raw)):
            pieces = SecretFilter()
            assert pieces.feed(raw[:cut]) + pieces.feed(raw[cut:]) + pieces.finish() == scrub_bytes(raw)

    def test_any_text_in_any_pieces_is_hidden_as_it_is_in_one(self) -> None:
        seed = time.time_ns()
        print(f"seed {seed}")
        rng = random.Random(seed)
        for _ in range(300):
            forget_all()
            # Few letters, so that the secrets overlap themselves and each other.
            secrets = ["".join(rng.choices("ab-", k=rng.randint(8, 12))) for _ in range(rng.randint(1, 3))]
            for secret in secrets:
                remember(secret)
            text = "".join(rng.choices([*"ab-x", *secrets], k=rng.randint(1, 40))).encode() + b"#"
            pieces, shown, at = SecretFilter(), b"", 0
            while at < len(text):
                size = rng.randint(1, 7)
                shown += pieces.feed(text[at : at + size])
                at += size
            assert shown + pieces.finish() == scrub_bytes(text), (secrets, text)

    def test_what_cannot_be_a_secret_is_shown_at_once(self) -> None:
        remember("secret-token")
        pieces = SecretFilter()
        fed = [pieces.feed(piece) for piece in (b"a line of s", b"and\n", b"the se", b"cret-token", b"it is se")]
        assert [*fed, pieces.finish()] == [b"a line of ", b"sand\n", b"the ", HIDDEN.encode(), b"it is ", b"se"]
        pieces = SecretFilter()
        assert pieces.feed(b"my secret-to") + pieces.finish() == f"my {HIDDEN}".encode(), "half of one at the end"


def test_output_is_copied_whole_and_in_order(tmp_path: Path) -> None:
    remember("secret-token")
    lines = b"".join(b"line %d of a secret-token\n" % number for number in range(50_000))
    with (tmp_path / "log").open("ab") as log:
        output = ScrubbedOutput(log.fileno())
    with os.fdopen(os.dup(output.pipe), "wb") as writer:
        writer.write(lines)
    output.close()
    output.settle()
    assert (tmp_path / "log").read_bytes() == lines.replace(b"secret-token", HIDDEN.encode())


def test_a_full_disk_keeps_no_writer_waiting() -> None:
    remember("secret-token")
    with Path("/dev/full").open("ab") as full:
        output = ScrubbedOutput(full.fileno())
    assert os.write(output.pipe, b"x" * 60_000) == os.write(output.pipe, b"y" * 60_000) == 60_000
    output.close()
    output.settle()
