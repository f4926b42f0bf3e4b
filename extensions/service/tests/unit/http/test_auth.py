"""Who may ask, and what nobody is told."""

import hmac
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hostcore_service.settings import InvalidService, read_settings

Client = Callable[..., TestClient]
#: What answers without a token.
OPEN = {"/healthz", "/readyz"}


def calls(service: TestClient) -> list[tuple[str, str]]:
    """Every route that needs a token, with values for its parts."""
    paths = service.get("/openapi.json").json()["paths"]
    found = []
    for path, methods in paths.items():
        if path not in OPEN:
            filled = path
            for part in ("run_id", "job_name", "step", "path", "sweep_id"):
                filled = filled.replace(f"{{{part}}}", "1")
            assert "{" not in filled, filled
            found += [(method.upper(), filled) for method in methods]
    return found


def test_every_route_answers_401_without_the_token_and_no_other_is_there(client: Client, tmp_path: Any) -> None:
    service = client(http={"data_roots": [str(tmp_path)]})
    routes = calls(service)
    assert len(routes) >= 5
    token = service.headers.pop("X-TRAINER-TOKEN")

    for method, path in routes:
        answer = service.request(method, path)
        assert answer.status_code == 401, (method, path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert method != "GET" or service.head(path).status_code == 401, path
        for wrong in ("", "wrong", "a-token-that-only-the-tests-kno", "A-TOKEN-THAT-ONLY-THE-TESTS-KNOW", "ÿþ"):
            for headers in ({"X-TRAINER-TOKEN": wrong.encode()}, {"Authorization": b"Bearer " + wrong.encode()}):
                assert service.request(method, path, headers=headers).status_code == 401, (method, path, headers)
    paths = [route.path for route in service.app.routes if hasattr(route, "path")]  # type: ignore[attr-defined]
    is_open = {path for path in paths if "{" not in path and service.get(path).status_code not in (401, 405)}
    assert is_open <= {*OPEN, "/openapi.json", "/"}
    # These pages would load scripts from elsewhere.
    assert [service.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]
    document = service.get("/openapi.json")
    assert (document.status_code, token in document.text, str(tmp_path) in document.text) == (200, False, False)

    for headers in ({"X-TRAINER-TOKEN": token}, {"x-trainer-token": token}, {"Authorization": f"Bearer {token}"}):
        assert service.get("/v1/jobs", headers=headers).status_code == 200


def test_the_token_is_compared_in_constant_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, right: bytes) -> bool:
        compared.append((given, right))
        return False

    service = client()
    monkeypatch.setattr(hmac, "compare_digest", compare)

    assert service.get("/v1/jobs").status_code == 401  # nothing but this function decides
    assert compared == [(service.headers["X-TRAINER-TOKEN"].encode(),) * 2]


def test_no_answer_shows_the_token(client: Client, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_API_TOKEN", "a-token-that-only-the-tests-know")
    read_settings(host="127.0.0.1")  # remembers it as a secret
    service = client()
    token = service.headers["X-TRAINER-TOKEN"]
    answers = [service.get(f"/v1/jobs{asked}{token}") for asked in ("/", "?status=", "?cursor=")]
    answers += [service.post("/v1/jobs", json=tiny(**{key: token})) for key in ("max_steps", token, "trainer")]

    for answer in answers:
        assert answer.status_code in (400, 404), answer.text
        assert token not in answer.text


@pytest.mark.parametrize(
    ("token", "host", "insecure", "says"),
    [
        (None, "127.0.0.1", False, "TRAINER_API_TOKEN is not set"),
        ("", "127.0.0.1", False, "TRAINER_API_TOKEN is not set"),
        ("x" * 16, "127.0.0.1", True, "is set, which contradicts --insecure-no-auth"),
        (None, "0.0.0.0", True, "listens on the loopback device only"),
        (None, "::", True, "listens on the loopback device only"),
        ("x" * 15, "127.0.0.1", False, "at least 16"),
        ("x" * 16 + " ", "127.0.0.1", False, "without spaces"),
        ("ä" * 16, "127.0.0.1", False, "ASCII"),
        ("x" * 16 + "\n", "127.0.0.1", False, "printable"),
    ],
)
def test_a_service_that_everybody_could_use_does_not_start(
    token: str | None, host: str, insecure: bool, says: str
) -> None:
    environment = {} if token is None else {"TRAINER_API_TOKEN": token}

    with pytest.raises(InvalidService, match=says) as raised:
        read_settings(host=host, insecure_no_auth=insecure, environment=environment)
    assert raised.value.hint
    assert not token or token not in str(raised.value)


ORIGINS: list[tuple[dict[str, str], int]] = [
    ({}, 200),
    ({"Host": "localhost:8321"}, 200),
    ({"Host": "[::1]:8321", "Origin": "http://[::1]:8321"}, 200),
    ({"Host": "127.0.0.1:8321", "Origin": "http://127.0.0.1:8321"}, 200),
    ({"Host": "127.0.0.1:8321", "Origin": "http://127.0.0.1:9000"}, 403),
    ({"Host": "127.0.0.1:8321", "Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "evil.example"}, 403),
    ({"Host": "127.0.0.1.evil.example"}, 403),
    ({"Host": "[::1"}, 403),
    ({"Host": ""}, 403),
]


def test_without_a_token_no_other_sites_page_can_use_the_service(client: Client) -> None:
    service = client(token=None)
    for headers, status in ORIGINS:
        assert service.get("/v1/jobs", headers=headers).status_code == status, headers
