"""Values of secrets do not leave a process, in whatever notation and in however many pieces."""

import base64
import html
import json
import random
import time
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, urlencode

import pytest

from hostcore.events.strict_json import dump
from hostcore.secrets.scrub import (
    HIDDEN,
    Stream,
    encoded,
    forget_all,
    forms_of,
    known,
    remember,
    replaced,
    scrub,
    scrub_bytes,
    scrubbed,
    when_known,
)

AWKWARD = [
    "plain-token-2718",
    'double"quote"inside',
    "single'quote'inside",
    "both\"and'inside",
    "back\\slash\\inside",
    "new\nline\ninside it all",
    "tab\tinside-it",
    "ümläut-ñandú-密码",
    "emoji-\N{KEY}-inside",
    "per%cent%41inside",
    "sp ace & <angle> + plus/slash?query=1#x",
    "  spaces around it  ",
    "\x1b[31mcontrol\x07",
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAo\n-----END KEY-----",
]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def notations(value: str) -> list[str]:
    """How programs write a value inside other text."""
    return [
        value,
        repr(value),
        ascii(value),
        repr({"key": [value]}),
        repr(f'it\'s "{value}"'),
        json.dumps({"key": value}),
        json.dumps({"key": value}, ensure_ascii=False),
        json.dumps(json.dumps({"key": value}, ensure_ascii=False), ensure_ascii=False),
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        urlencode({"token": value}),
        html.escape(value),
        base64.b64encode(value.encode()).decode(),
        base64.b64encode(f"user:{value}".encode()).decode(),
        base64.b64encode(f"me:{value}!".encode()).decode(),
        base64.urlsafe_b64encode(f"u:{value}".encode()).decode(),
        value.strip(),
        " ".join(value.split()),
    ]


@pytest.mark.parametrize("value", AWKWARD)
def test_a_value_is_hidden_in_every_notation(value: str) -> None:
    remember(value)
    core = max(value.split(), key=len)
    for text in notations(value):
        hidden = scrub(f"before {text} behind")
        assert HIDDEN in hidden, text
        assert core not in hidden
        assert hidden.startswith("before ")
        assert hidden.endswith(" behind")
        assert scrub_bytes(f"before {text} behind".encode()) == hidden.encode()


@pytest.mark.parametrize("value", AWKWARD)
def test_json_is_hidden_string_by_string_and_stays_json(value: str) -> None:
    remember(value)
    document = {
        f"name of {value}": 1.5,
        "text": f"x{value}y",
        "nested": [{"deep": [value, None, True]}],
        "as_json": json.dumps({"token": value}),
    }
    read = json.loads(dump(document))
    assert read[f"name of {HIDDEN}"] == 1.5
    assert read["text"] == f"x{HIDDEN}y"
    assert read["nested"] == [{"deep": [HIDDEN, None, True]}]
    assert json.loads(read["as_json"]) == {"token": HIDDEN}
    assert json.loads(dump(document, indent=True)) == read


def test_numbers_are_no_strings() -> None:
    remember("17632041")
    assert json.loads(dump({"time_ms": 17632041, "text": "at 17632041"})) == {
        "time_ms": 17632041,
        "text": f"at {HIDDEN}",
    }


def test_a_secret_inside_another_hides_both() -> None:
    remember("inner-secret")
    remember("outer-inner-secret-outer")
    assert scrub("a outer-inner-secret-outer b inner-secret c") == f"a {HIDDEN} b {HIDDEN} c"


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    remember("abcdefgh")
    remember("efghijkl")
    assert scrub("<abcdefghijkl>") == f"<{HIDDEN}>"
    assert scrub("<abcdefgh><efghijkl>") == f"<{HIDDEN}><{HIDDEN}>"


def test_a_secret_that_begins_as_it_ends_is_hidden_wherever_it_overlaps_itself() -> None:
    remember("abababab")
    assert scrub("xabababababy") == f"x{HIDDEN}y"


def test_nothing_is_done_while_nothing_is_known() -> None:
    text = "anything at all"
    assert scrub(text) is text
    document = {"a": (1, 2)}
    assert scrubbed(document) is document


def test_what_is_too_short_is_not_looked_for() -> None:
    remember("abc")
    assert scrub("abc") == "abc"
    assert known() == ()


def test_whoever_waits_for_a_first_secret_is_called_once() -> None:
    called: list[int] = []
    when_known(lambda: called.append(1))
    assert called == []
    remember("first-secret")
    remember("second-secret")
    assert called == [1]
    when_known(lambda: called.append(2))
    assert called == [1, 2]


class TestPieces:
    @pytest.mark.parametrize("value", AWKWARD)
    def test_a_secret_cut_anywhere_is_hidden(self, value: str) -> None:
        forms = encoded(forms_of([value]))
        raw = f"before {value} behind\n".encode()
        for cut in range(len(raw)):
            stream = Stream(forms, HIDDEN.encode())
            assert (
                stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.finish()
                == f"before {HIDDEN} behind\n".encode()
            )

    def test_any_text_in_any_pieces_is_hidden_as_it_is_in_one(self) -> None:
        seed = time.time_ns()
        print(f"seed {seed}")
        rng = random.Random(seed)
        for _ in range(300):
            # Few letters, so that the secrets overlap themselves and each other.
            secrets = ["".join(rng.choices("ab-", k=rng.randint(4, 9))) for _ in range(rng.randint(1, 3))]
            forms = encoded(sorted(secrets, key=len, reverse=True))
            text = "".join(rng.choices([*"ab-x", *secrets], k=rng.randint(1, 40))).encode() + b"#"
            stream = Stream(forms, b"*" * 8)
            shown, at = b"", 0
            while at < len(text):
                size = rng.randint(1, 7)
                shown += stream.feed(text[at : at + size])
                at += size
            shown += stream.finish()
            assert shown == replaced(text, forms, b"*" * 8), (secrets, text)

    def test_what_cannot_be_a_secret_is_shown_at_once(self) -> None:
        stream = Stream(("secret-token",), HIDDEN)
        assert stream.feed("a line of s") == "a line of "
        assert stream.feed("and\n") == "sand\n"
        assert stream.feed("the se") == "the "
        assert stream.feed("cret-token") == HIDDEN
        assert stream.finish() == ""

    def test_half_a_secret_at_the_end_is_hidden(self) -> None:
        stream = Stream(("secret-token",), HIDDEN)
        assert stream.feed("my secret-to") + stream.finish() == f"my {HIDDEN}"

    def test_a_letter_at_the_end_is_shown(self) -> None:
        stream = Stream(("secret-token",), HIDDEN)
        assert stream.feed("it is se") + stream.finish() == "it is se"
