import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import orjson
import pytest
from checkout import ROOT
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from waiting import wait_until

from hostcore_hookspecs import Event, FatalError, HostcoreError, InvalidSettings, Secret, TransientError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    EpochStarted,
    Metrics,
    Progress,
    RunCancelled,
    RunError,
    RunFailed,
    RunPreempted,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Validation,
)
from hostcore_trackers.webhook import WebhookReporter, key_of, signed_headers


@attrs.frozen
class Hook:
    """A run, and the server that its reporters post to."""

    run: Any
    receiver: Any
    make_answer: Callable[..., Any]
    made: list[WebhookReporter] = attrs.field(factory=list)

    @property
    def requests(self) -> Any:
        return self.receiver.requests

    def answers(self, **answer: Any) -> None:
        """How it answers the next request."""
        self.receiver.answers.append(self.make_answer(**answer))

    def event(self, payload: Any = None, step: int | None = None) -> Event:
        event: Event = self.run.tell(payload or EpochStarted(), step=step)
        return event

    def open(self, **settings: Any) -> WebhookReporter:
        if settings.get("format") != "kubeflow":
            settings = {"url": self.receiver.url, **settings}
        reporter = WebhookReporter(settings=WebhookReporter.Settings(**settings))
        reporter.open(self.run.ctx())
        self.made.append(reporter)
        return reporter

    def tell(self, payload: Any = None, step: int | None = None, **settings: Any) -> WebhookReporter:
        """A new reporter, which was told of an event."""
        reporter = self.open(**settings)
        reporter.report_event(self.event(payload, step))
        return reporter


@pytest.fixture
def hook(course: Any, receiver: Any, answer: Any) -> Iterator[Hook]:
    hook = Hook(course(), receiver, answer)
    yield hook
    for reporter in hook.made:
        reporter.close()


@pytest.fixture(scope="module")
def is_genuine() -> Callable[[bytes, Mapping[str, str], bytes], bool]:
    """What the documentation has a receiver do."""
    page = ROOT / "docs" / "reference" / "reporters.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    return names["is_genuine"]


def test_the_body_is_the_event_as_it_is_in_the_log_and_a_repetition_has_the_same_key(hook: Hook) -> None:
    told = [hook.event(step=0), hook.event(Metrics(metrics=MappingProxyType({"train/loss": 0.5})), step=1)]
    reporter = hook.open(token=Secret("t0ken"), headers={"X-Team": "flights"})
    for event in [*told, told[1]]:
        reporter.report_event(event)
    first, second = map(orjson.loads, (hook.run.run_dir / "logs" / "events.jsonl").read_bytes().splitlines())
    assert [request.json for request in hook.requests] == [first, second, second]
    keys = [request.headers["idempotency-key"] for request in hook.requests]
    assert keys == ["flights-1:1", "flights-1:2", "flights-1:2"]
    expected = {"content-type": "application/json", "authorization": "Bearer t0ken", "x-team": "flights"}
    assert expected.items() <= hook.requests[0].headers.items()
    assert hook.receiver.connections == 1


def test_a_signature_proves_body_key_and_time(hook: Hook, is_genuine: Callable[..., bool]) -> None:
    key = b"correct horse"
    for age in (0, 1000):
        settings = WebhookReporter.Settings(url=hook.receiver.url, secret=Secret("correct horse"))
        reporter = WebhookReporter(settings=settings, wall_clock=lambda age=age: time.time() - age)
        reporter.open(hook.run.ctx())
        reporter.report_event(hook.event())
        reporter.close()
    new, old = hook.requests
    assert is_genuine(key, new.headers, new.body)
    assert not is_genuine(b"wrong horse", new.headers, new.body)
    assert not is_genuine(key, new.headers, new.body.replace(b"epoch", b"xpoch"))
    assert not is_genuine(key, {**new.headers, "webhook-id": "flights-1:2"}, new.body)
    assert not is_genuine(key, {**new.headers, "webhook-timestamp": str(int(time.time()) + 1)}, new.body)
    assert not is_genuine(key, old.headers, old.body)


def test_a_signature_is_that_of_the_specification() -> None:
    # The example of the reference implementations of Standard Webhooks.
    headers = signed_headers(
        key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_events_picks_what_is_posted(hook: Hook) -> None:
    reporter = hook.tell(events=("run_succeeded",))
    reporter.report_event(hook.event(RunSucceeded()))
    assert [request.json["event"] for request in hook.requests] == ["run_succeeded"]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, None) for status in (200, 201, 202, 204, 409)),
        *((status, TransientError) for status in (408, 425, 429, 500, 502, 503, 504)),
        *((status, FatalError) for status in (400, 401, 403, 404, 405, 410, 413, 422)),
    ],
)
def test_a_status_is_success_or_may_pass_or_may_not(hook: Hook, status: int, error: type[HostcoreError] | None) -> None:
    hook.answers(status=status, headers={"Retry-After": "17"}, body=b"busy")
    with nullcontext() if error is None else pytest.raises(error, match=f"answered {status} .*: busy") as caught:
        hook.tell()
    assert len(hook.requests) == 1  # trying again is the host's business
    if error is TransientError:
        assert caught.value.retry_after_seconds == 17


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, None), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)], ids=repr
)
def test_retry_after_may_be_missing_wrong_or_a_date(hook: Hook, header: str | None, seconds: float | None) -> None:
    hook.answers(status=503, headers={"Retry-After": header} if header else {})
    with pytest.raises(TransientError) as caught:
        hook.tell()
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(hook: Hook, status: int) -> None:
    hook.answers(status=status, headers={"Location": hook.receiver.url})
    with pytest.raises(FatalError) as caught:
        hook.tell(token=Secret("t0ken"))
    assert "redirects are not followed" in (caught.value.hint or "")
    assert len(hook.requests) == 1


def test_no_answer_is_transient_after_the_timeout(hook: Hook) -> None:
    hook.receiver.may_answer.clear()
    with pytest.raises(TransientError, match="timed out"):
        hook.tell(timeout_seconds=0.2)


def test_an_answer_that_breaks_off_is_transient(hook: Hook) -> None:
    hook.answers(body=b"half", headers={"Content-Length": "8", "Connection": "close"})
    with pytest.raises(TransientError, match="IncompleteRead"):
        hook.tell()


def test_a_long_answer_is_not_read_to_its_end(hook: Hook) -> None:
    hook.answers(status=500, body=b"x" * 10_000_000)
    event, reporter = hook.event(), hook.open()
    with pytest.raises(TransientError) as caught:
        reporter.report_event(event)
    assert len(caught.value.message) < 5000
    reporter.report_event(event)  # over a new connection
    assert hook.receiver.connections == 2


def test_nobody_there_is_transient_and_what_is_in_the_query_stays_secret(hook: Hook) -> None:
    with pytest.raises(TransientError, match=r"POST http://127\.0\.0\.1:9/hook: ") as caught:
        hook.tell(url="http://127.0.0.1:9/hook?key=hidden")
    assert "hidden" not in caught.value.message


def test_a_server_that_comes_back_is_found_again(hook: Hook) -> None:
    reporter = hook.open(timeout_seconds=0.3)
    first, second = hook.event(), hook.event()
    hook.receiver.may_answer.clear()
    with pytest.raises(TransientError):
        reporter.report_event(first)
    hook.receiver.may_answer.set()

    def told(event: Any) -> bool:
        """Whether it was told; a busy server may take longer than this reporter waits, and the host tries again."""
        with suppress(TransientError):
            reporter.report_event(event)
            return True
        return False

    for event in (first, second):
        wait_until(partial(told, event), "the server to be found again")
    assert {request.json["seq"] for request in hook.requests} == {1, 2}


def test_the_proxy_of_the_environment_is_used(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", hook.receiver.url.removesuffix("/hook"))
    hook.tell(url="http://hooks.invalid/there")
    assert [request.path for request in hook.requests] == ["http://hooks.invalid/there"]


def test_a_certificate_is_trusted_only_if_the_settings_say_so(hook: Hook, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    hook.receiver.server.socket = tls.wrap_socket(hook.receiver.server.socket, server_side=True)
    url = hook.receiver.url.replace("http:", "https:")
    with pytest.raises(TransientError, match="certificate verify failed"):
        hook.tell(url=url)
    assert hook.requests == []
    hook.tell(url=url, ca_file=certificate)
    assert len(hook.requests) == 1


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "server.crt", folder / "server.key"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


def test_a_mistyped_event_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidSettings) as caught:
        WebhookReporter(settings=WebhookReporter.Settings(url="http://h", events=("run_suceeded",)))
    assert caught.value.hint == "did you mean 'run_succeeded'?"


# The format orchestrator.


def test_an_orchestrator_hears_of_metrics_and_of_the_end(hook: Hook) -> None:
    terminal = hook.receiver.url.replace("hook", "terminal")
    reporter = hook.open(terminal_url=terminal, format="orchestrator", token=Secret("t0ken"))
    for payload, step in [
        (RunSubmitted(trainer="flights", max_steps=20), None),
        (Metrics(metrics={"train/loss": 0.5, "a": None}), 10),
        (Validation(metrics={"val/loss": 0.4}, weight=1), 20),
        (CheckpointSaved(path="checkpoints/step-000020", bytes=1, final=True), 20),
        (RunSucceeded(), 20),
    ]:
        reporter.report_event(hook.event(payload, step))
    common = {"run_id": "flights-1", "step": 20}
    end = {"kind": "terminal", "status": "completed", "error": "", "final_checkpoint": "checkpoints/step-000020"}
    assert [(request.path, request.json) for request in hook.requests] == [
        ("/hook", {"run_id": "flights-1", "kind": "metrics", "step": 10, "metrics": {"train/loss": 0.5, "a": None}}),
        ("/hook", {**common, "kind": "metrics", "metrics": {"val/loss": 0.4}}),
        ("/terminal", {**common, **end, "final_checkpoint_ref": None, "final_checkpoint_sha256": None}),
    ]
    assert hook.requests[0].body == (
        b'{"kind":"metrics","metrics":{"a":null,"train/loss":0.5},"run_id":"flights-1","step":10}'
    )
    assert {request.headers["authorization"] for request in hook.requests} == {"Bearer t0ken"}


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (RunFailed(error=RunError(type="ValueError", message="no")), "ValueError: no"),
        (RunCancelled(reason="enough"), "canceled"),
        (RunPreempted(), "preempted"),
    ],
    ids=["failed", "cancelled", "preempted"],
)
def test_an_orchestrator_hears_every_other_end_as_failed(hook: Hook, end: Any, error: str) -> None:
    hook.tell(end, 3, format="orchestrator")
    (request,) = hook.requests
    assert (request.json["status"], request.json["error"], request.json["step"]) == ("failed", error, 3)


# The format kubeflow.


@pytest.fixture
def trainjob(hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a container of a TrainJob; returns the file with the token."""
    token = tmp_path / "token"
    token.write_text("jwt-1\n")
    monkeypatch.setenv("KUBEFLOW_TRAINER_STATUS_URL", hook.receiver.url)
    monkeypatch.setenv("KUBEFLOW_TRAINER_STATUS_TOKEN", str(token))
    return token


@pytest.mark.usefixtures("trainjob")
class TestKubeflow:
    def test_hears_how_far_the_run_is(self, hook: Hook) -> None:
        reporter = hook.open(format="kubeflow", every_seconds=0)
        for payload, step in [
            (RunSubmitted(trainer="flights", max_steps=100, total_steps=100, epochs=2), None),
            (RunStarted(device="cpu"), 0),
            (Metrics(metrics={"train/loss": 0.1}), 10),
            (Metrics(metrics={"train/loss": 0.2}), 20),
        ]:
            reporter.report_event(hook.event(payload, step))
        # Ten steps a second, as the events' times have it.
        assert hook.requests[-1].json["trainerStatus"] == {
            "progressPercentage": 20,
            "estimatedRemainingSeconds": 8,
            "lastUpdatedTime": "2023-11-14T22:13:23Z",
            "metrics": [
                {"name": "currentStep", "value": "20"},
                {"name": "totalSteps", "value": "100"},
                {"name": "currentEpoch", "value": "1"},
                {"name": "totalEpochs", "value": "2"},
                {"name": "train/loss", "value": "0.2"},
            ],
        }
        reporter.report_event(hook.event(RunSucceeded(), 50))
        assert hook.requests[-1].json["trainerStatus"]["progressPercentage"] == 100

    def test_is_told_at_most_every_so_many_seconds_but_always_of_the_end(self, hook: Hook) -> None:
        reporter = hook.open(format="kubeflow", every_seconds=5)
        for step in range(1, 13):  # one a second
            reporter.report_event(hook.event(Progress(), step))
        reporter.report_event(hook.event(RunSucceeded(), 12))
        told = [request.json["trainerStatus"]["metrics"][0]["value"] for request in hook.requests]
        assert told == ["1", "6", "11", "12"]

    @pytest.mark.parametrize("status", [503, 403])  # it may know the pod later
    def test_is_told_again_after_a_failure(self, hook: Hook, status: int) -> None:
        reporter, event = hook.open(format="kubeflow"), hook.event(Metrics(metrics={"train/loss": 0.5}), 1)
        hook.answers(status=status)
        with pytest.raises(TransientError, match=str(status)):
            reporter.report_event(event)
        reporter.report_event(event)
        assert hook.requests[0].body == hook.requests[1].body

    def test_gets_the_token_that_its_file_has_now(self, hook: Hook, trainjob: Path) -> None:
        reporter = hook.tell(Progress(), 1, format="kubeflow", every_seconds=0)
        trainjob.write_text("jwt-2")
        reporter.report_event(hook.event(Progress(), 2))
        assert [request.headers["authorization"] for request in hook.requests] == ["Bearer jwt-1", "Bearer jwt-2"]

    def test_has_names_in_its_releases_which_count_first(self, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", hook.receiver.url.replace("hook", "released"))
        hook.tell(Progress(), 1, format="kubeflow")
        (request,) = hook.requests
        assert request.path == "/released"
        assert "authorization" not in request.headers  # that token is for the other server

    def test_has_a_token_of_the_cluster_that_goes_nowhere_else(self, hook: Hook) -> None:
        hook.tell(Progress(), 1, format="kubeflow", url=hook.receiver.url)
        assert "authorization" not in hook.requests[0].headers

    def test_gets_metrics_that_keep_the_limits_of_a_trainjob_and_names_of_their_own(self, hook: Hook) -> None:
        alike: dict[str, float | None] = {"bad": None, "n" * 64 + "a": 1.0, "n" * 64 + "b": 2.0, "currentStep": 3.0}
        many = {f"{index}/{'x' * 100}": 1 / 3 for index in range(400)}
        hook.tell(Metrics(metrics={**alike, **many}), 7, format="kubeflow")
        sent = hook.requests[0].json["trainerStatus"]["metrics"]
        assert len(sent) == len({item["name"] for item in sent}) == 256
        assert all(1 <= len(item["name"]) <= 64 and 1 <= len(item["value"]) <= 64 for item in sent)
        assert {item["value"] for item in sent} >= {"7", "1.0", "2.0", "3.0"}
        assert [{"name": "bad", "value": "nan"} in sent, {"name": "currentStep", "value": "7"} in sent] == [True, True]


def test_outside_of_a_trainjob_kubeflow_is_given_up(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATUS", "SERVER"):
        monkeypatch.delenv(f"KUBEFLOW_TRAINER_{name}_URL", raising=False)
    with pytest.raises(FatalError, match="no container of a TrainJob"):
        hook.open(format="kubeflow")


def test_a_missing_file_of_certificates_is_told_at_once(hook: Hook, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="there are no certificates in"):
        hook.open(url="https://localhost", ca_file=tmp_path / "ca.crt")
