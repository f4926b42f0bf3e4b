"""What a body may be: strict JSON, of bounded size and depth."""

import gzip
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from fastapi.testclient import TestClient
from served import codes

from hostcore_service.http.body import MAX_BYTES, MAX_DEPTH

Client = Callable[..., TestClient]
JSON = {"Content-Type": "application/json"}


def nested(depth: int) -> bytes:
    """A job with so many objects and lists inside each other."""
    value = b"1"
    for level in range(depth - 1):
        value = b"[%s]" % value if level % 2 else b'{"x": %s}' % value
    return b'{"trainer": "tiny", "max_steps": 3, "hyperparams": %s}' % value


NOT_STRICT: list[tuple[bytes, Any]] = [
    (b"", [("job.syntax", None)]),
    (b"  \n", [("job.syntax", None)]),
    (b"\xef\xbb\xbf[]", [("job.not_object", "")]),
    (b"\xef\xbb\xbf\xef\xbb\xbf{}", [("job.syntax", None)]),
    (b'{"trainer": "\xff"}', [("job.encoding", None)]),
    (b'{"trainer": "tiny"', [("job.syntax", None)]),
    (b'{"trainer": "tiny"} {}', [("job.syntax", None)]),
    (b"[]", [("job.not_object", "")]),
    (b'"tiny"', [("job.not_object", "")]),
    (b"null", [("job.not_object", "")]),
    (b"NaN", [("job.not_object", "")]),
    (b'{"hyperparams": {"lr": NaN}}', [("job.value", "/hyperparams/lr")]),
    (b'{"hyperparams": {"lr": -Infinity}}', [("job.value", "/hyperparams/lr")]),
    (b'{"hyperparams": {"lr": 1e999}}', [("job.value", "/hyperparams/lr")]),
    (b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}', [("job.duplicate_key", "/b/c"), ("job.duplicate_key", "/a")]),
    (b'{"hyperparams": {"n": 9223372036854775808}}', [("job.value", "/hyperparams/n")]),
    (b'{"hyperparams": {"n": [-9223372036854775809]}}', [("job.value", "/hyperparams/n/0")]),
    (b'{"hyperparams": {"n": %s}}' % (b"9" * 5000), [("job.syntax", None)]),
    (rb'{"owner": "\ud800"}', [("job.value", "/owner")]),
    (rb'{"owner": "a\u0000b"}', [("job.value", "/owner")]),
    (b"[" * 100_000, [("job.too_deep", None)]),
    (b'{"a":' * 100_000, [("job.too_deep", None)]),
]


def test_what_is_not_strict_json_is_refused_with_its_place(client: Client) -> None:
    service = client()
    for body, expected in NOT_STRICT:
        answer = service.post("/v1/jobs", content=body, headers=JSON)
        assert (answer.status_code, codes(answer)) == (400, expected), body[:40]
    assert service.post("/v1/jobs", content=nested(MAX_DEPTH), headers=JSON).status_code == 201
    deeper = service.post("/v1/jobs", content=nested(MAX_DEPTH + 1), headers=JSON)
    assert (deeper.status_code, [code for code, _ in codes(deeper)]) == (400, ["job.too_deep"])


def test_a_body_is_one_mebibyte_at_the_most(client: Client, tiny: Any) -> None:
    service = client()
    head = orjson.dumps(tiny(annotations={"x": ""})).removesuffix(b'"}}')
    fits = head + b"x" * (MAX_BYTES - len(head) - 3) + b'"}}'
    assert len(fits) == MAX_BYTES

    def chunks(body: bytes) -> Iterator[bytes]:
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    for sent in (bytes, chunks):
        assert service.post("/v1/jobs", content=sent(fits), headers=JSON).status_code == 201
        too_long = service.post("/v1/jobs", content=sent(fits.replace(b'"}}', b'x"}}')), headers=JSON)
        assert (too_long.status_code, codes(too_long)) == (413, [("request.too_large", None)])


MEDIA_TYPES = [
    ("application/json", 201),
    ("application/json; charset=utf-8", 201),
    ("Application/JSON", 201),
    ("application/vnd.hostcore+json", 201),
    ("text/plain", 415),
    ("application/x-www-form-urlencoded", 415),
    ("multipart/form-data; boundary=x", 415),
    ("application/yaml", 415),
    ("", 415),
]


def test_a_body_says_that_it_is_json_and_may_begin_with_a_byte_order_mark(client: Client, tiny: Any) -> None:
    service = client()
    for media_type, status in MEDIA_TYPES:
        answer = service.post("/v1/jobs", content=orjson.dumps(tiny()), headers={"Content-Type": media_type})
        assert answer.status_code == status, media_type
    for mark, headers in ((b"\xef\xbb\xbf", JSON), (b"", {**JSON, "Content-Encoding": "identity"})):
        assert service.post("/v1/jobs", content=mark + orjson.dumps(tiny()), headers=headers).status_code == 201


#: A body of a wish about a job, the place of what is wrong with it, and the beginning of what is said.
WISHES: list[tuple[str, Any, str | None, str]] = [
    ("cancel", {"reason": 5}, "/reason", "expected a string, found 5"),
    ("cancel", {"reason": "x" * 1001}, "/reason", "expected at most 1000 characters"),
    ("cancel", {"reasons": "x"}, "/reasons", 'there is no key "reasons"'),
    ("resume", {"launches": 0}, "/launches", "expected at least 1"),
    ("resume", {"launches": "2"}, "/launches", "expected an integer"),
    ("resume", {"launched": 2}, "/launched", 'there is no key "launched"'),
    ("resume", [], "", ""),
]


def test_what_is_wrong_with_a_wish_to_cancel_or_resume_is_told(client: Client, tiny: Any) -> None:
    service = client(launcher="stuck")
    service.post("/v1/jobs", json=tiny(run_id="a"))
    for wish, body, pointer, says in WISHES:
        answer = service.post(f"/v1/jobs/a:{wish}", json=body)
        assert (answer.status_code, [place for _, place in codes(answer)]) == (400, [pointer]), body
        assert answer.json()["errors"][0]["detail"].startswith(says), answer.text
    job = service.get("/v1/jobs/a").json()
    assert (job["cancelling"], job["launches"]) == (False, 1)
    too_long = tiny(owner="x" * 257, labels={"k" * 257: "v", "k" * 256: "v" * 5000})  # to find a job by
    assert codes(service.post("/v1/jobs", json=too_long)) == [
        ("value.range", "/owner"),
        ("value.range", f"/labels/{'k' * 257}"),
    ]


def test_an_encoded_body_is_refused_as_such(client: Client) -> None:
    service, content = client(), gzip.compress(b'{"trainer": "tiny"}')
    paths = ("/v1/jobs", "/v1/jobs:validate", "/train", "/v1/jobs/a:cancel")
    for path, encoding in itertools.product(paths, ("gzip", "br", "GZIP", "identity, gzip", "x-unknown")):
        answer = service.post(path, content=content, headers={**JSON, "Content-Encoding": encoding})
        assert (answer.status_code, codes(answer)) == (415, [("request.media_type", None)]), (path, encoding)
        assert answer.headers["accept-encoding"] == "identity"
