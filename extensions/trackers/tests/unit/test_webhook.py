import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from checkout import ROOT
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from waiting import wait_until

from hostcore_hookspecs import FatalError, InvalidSettings, Secret, TransientError
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

Course = Any
MakeCourse = Callable[..., Course]
Receiver = Any
Answer = Callable[..., Any]


@pytest.fixture
def opened() -> Any:
    """Makes reporters, and closes them."""
    made: list[WebhookReporter] = []

    def open_one(run: Course, **settings: Any) -> WebhookReporter:
        reporter = WebhookReporter(settings=WebhookReporter.Settings(**settings))
        reporter.open(run.ctx())
        made.append(reporter)
        return reporter

    yield open_one
    for reporter in made:
        reporter.close()


@pytest.fixture(scope="module")
def is_genuine() -> Callable[[bytes, Mapping[str, str], bytes], bool]:
    """What the documentation has a receiver do."""
    page = ROOT / "docs" / "reference" / "reporters.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    return names["is_genuine"]


def test_the_body_is_the_event_as_it_is_in_the_log(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    told = [run.tell(EpochStarted(), step=0), run.tell(Metrics(metrics=MappingProxyType({"train/loss": 0.5})), step=1)]
    reporter = opened(run, url=receiver.url)
    for event in told:
        reporter.report_event(event)
    log = (run.run_dir / "logs" / "events.jsonl").read_bytes().splitlines()
    assert [request.json for request in receiver.requests] == [orjson.loads(line) for line in log]
    assert receiver.requests[0].headers["content-type"] == "application/json"
    assert receiver.connections == 1


def test_a_repetition_has_the_same_key(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    event = run.tell(EpochStarted())
    reporter = opened(run, url=receiver.url)
    reporter.report_event(event)
    reporter.report_event(event)
    assert [request.headers["idempotency-key"] for request in receiver.requests] == ["flights-1:1"] * 2


def test_a_signature_proves_body_key_and_time(
    course: MakeCourse, receiver: Receiver, is_genuine: Callable[..., bool]
) -> None:
    run, key = course(), b"correct horse"
    for age in (0, 1000):
        settings = WebhookReporter.Settings(url=receiver.url, secret=Secret("correct horse"))
        reporter = WebhookReporter(settings=settings, wall_clock=lambda age=age: time.time() - age)
        reporter.open(run.ctx())
        reporter.report_event(run.tell(EpochStarted()))
        reporter.close()
    new, old = receiver.requests
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


def test_a_token_and_headers_are_sent(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    reporter = opened(run, url=receiver.url, token=Secret("t0ken"), headers={"X-Team": "flights"})
    reporter.report_event(run.tell(EpochStarted()))
    (request,) = receiver.requests
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["x-team"] == "flights"


def test_events_picks_what_is_posted(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    reporter = opened(run, url=receiver.url, events=("run_succeeded",))
    for payload in (EpochStarted(), RunSucceeded()):
        reporter.report_event(run.tell(payload))
    assert [request.json["event"] for request in receiver.requests] == ["run_succeeded"]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 409])
def test_success_and_a_conflict_count_as_told(
    status: int, course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=status))
    opened(run, url=receiver.url).report_event(run.tell(EpochStarted()))
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_transient(
    status: int, course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=status, headers={"Retry-After": "17"}, body=b"busy"))
    with pytest.raises(TransientError, match=f"answered {status} .*: busy") as caught:
        opened(run, url=receiver.url).report_event(run.tell(EpochStarted()))
    assert caught.value.retry_after_seconds == 17
    assert len(receiver.requests) == 1  # trying again is the host's business


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, None), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)], ids=repr
)
def test_retry_after_may_be_missing_wrong_or_a_date(
    header: str | None, seconds: float | None, course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=503, headers={"Retry-After": header} if header else {}))
    with pytest.raises(TransientError) as caught:
        opened(run, url=receiver.url).report_event(run.tell(EpochStarted()))
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422])
def test_what_cannot_pass_is_fatal(
    status: int, course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=status, body=b"no"))
    with pytest.raises(FatalError, match=f"answered {status} .*: no"):
        opened(run, url=receiver.url).report_event(run.tell(EpochStarted()))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(
    status: int, course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=status, headers={"Location": receiver.url}))
    with pytest.raises(FatalError) as caught:
        opened(run, url=receiver.url, token=Secret("t0ken")).report_event(run.tell(EpochStarted()))
    assert "redirects are not followed" in (caught.value.hint or "")
    assert len(receiver.requests) == 1


def test_no_answer_is_transient_after_the_timeout(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    receiver.may_answer.clear()
    with pytest.raises(TransientError, match="timed out"):
        opened(run, url=receiver.url, timeout_seconds=0.2).report_event(run.tell(EpochStarted()))


def test_an_answer_that_breaks_off_is_transient(
    course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(body=b"half", headers={"Content-Length": "8", "Connection": "close"}))
    with pytest.raises(TransientError, match="did not finish its answer"):
        opened(run, url=receiver.url).report_event(run.tell(EpochStarted()))


def test_a_long_answer_is_not_read_to_its_end(
    course: MakeCourse, receiver: Receiver, answer: Answer, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=500, body=b"x" * 10_000_000))
    reporter = opened(run, url=receiver.url)
    event = run.tell(EpochStarted())
    with pytest.raises(TransientError) as caught:
        reporter.report_event(event)
    assert len(caught.value.message) < 5000
    reporter.report_event(event)  # over a new connection
    assert receiver.connections == 2


def test_nobody_there_is_transient_and_what_is_in_the_query_stays_secret(course: MakeCourse, opened: Any) -> None:
    run = course()
    with pytest.raises(TransientError, match=r"cannot post to http://127\.0\.0\.1:9/hook: ") as caught:
        opened(run, url="http://127.0.0.1:9/hook?key=hidden").report_event(run.tell(EpochStarted()))
    assert "hidden" not in caught.value.message


def test_a_server_that_comes_back_is_found_again(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    reporter = opened(run, url=receiver.url, timeout_seconds=0.3)
    first, second = run.tell(EpochStarted()), run.tell(EpochStarted())
    receiver.may_answer.clear()
    with pytest.raises(TransientError):
        reporter.report_event(first)
    receiver.may_answer.set()

    def told(event: Any) -> bool:
        """Whether it was told; a busy server may take longer than this reporter waits, and the host tries again."""
        with suppress(TransientError):
            reporter.report_event(event)
            return True
        return False

    for event in (first, second):
        wait_until(partial(told, event), "the server to be found again")
    assert {request.json["seq"] for request in receiver.requests} == {1, 2}


def test_the_proxy_of_the_environment_is_used(
    course: MakeCourse, receiver: Receiver, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course()
    monkeypatch.setenv("http_proxy", receiver.url.removesuffix("/hook"))
    opened(run, url="http://hooks.invalid/there").report_event(run.tell(EpochStarted()))
    assert [request.path for request in receiver.requests] == ["http://hooks.invalid/there"]


def test_a_certificate_is_trusted_only_if_the_settings_say_so(
    course: MakeCourse, receiver: Receiver, opened: Any, tmp_path: Path
) -> None:
    run = course()
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    receiver.server.socket = tls.wrap_socket(receiver.server.socket, server_side=True)
    url = receiver.url.replace("http:", "https:")
    event = run.tell(EpochStarted())
    with pytest.raises(TransientError, match="certificate verify failed"):
        opened(run, url=url).report_event(event)
    assert receiver.requests == []
    opened(run, url=url, ca_file=certificate).report_event(event)
    assert len(receiver.requests) == 1


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


def test_an_orchestrator_hears_of_metrics_and_of_the_end(course: MakeCourse, receiver: Receiver, opened: Any) -> None:
    run = course()
    terminal = receiver.url.replace("hook", "terminal")
    reporter = opened(run, url=receiver.url, terminal_url=terminal, format="orchestrator", token=Secret("t0ken"))
    for payload, step in [
        (RunSubmitted(trainer="flights", max_steps=20), None),
        (Metrics(metrics={"train/loss": 0.5, "a": None}), 10),
        (Validation(metrics={"val/loss": 0.4}, weight=1), 20),
        (CheckpointSaved(path="checkpoints/step-000020", bytes=1, final=True), 20),
        (RunSucceeded(), 20),
    ]:
        reporter.report_event(run.tell(payload, step=step))
    common = {"run_id": "flights-1", "step": 20}
    assert [(request.path, request.json) for request in receiver.requests] == [
        ("/hook", {"run_id": "flights-1", "kind": "metrics", "step": 10, "metrics": {"train/loss": 0.5, "a": None}}),
        ("/hook", {**common, "kind": "metrics", "metrics": {"val/loss": 0.4}}),
        (
            "/terminal",
            {
                **common,
                "kind": "terminal",
                "status": "completed",
                "error": "",
                "final_checkpoint": "checkpoints/step-000020",
                "final_checkpoint_ref": None,
                "final_checkpoint_sha256": None,
            },
        ),
    ]
    assert receiver.requests[0].body == (
        b'{"kind":"metrics","metrics":{"a":null,"train/loss":0.5},"run_id":"flights-1","step":10}'
    )
    assert {request.headers["authorization"] for request in receiver.requests} == {"Bearer t0ken"}


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (RunFailed(error=RunError(type="ValueError", message="no")), "ValueError: no"),
        (RunCancelled(reason="enough"), "canceled"),
        (RunPreempted(), "preempted"),
    ],
    ids=["failed", "cancelled", "preempted"],
)
def test_an_orchestrator_hears_every_other_end_as_failed(
    end: Any, error: str, course: MakeCourse, receiver: Receiver, opened: Any
) -> None:
    run = course()
    opened(run, url=receiver.url, format="orchestrator").report_event(run.tell(end, step=3))
    (request,) = receiver.requests
    assert (request.json["status"], request.json["error"], request.json["step"]) == ("failed", error, 3)


# The format kubeflow.


@pytest.fixture
def trainjob(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a container of a TrainJob; returns the file with the token."""
    token = tmp_path / "token"
    token.write_text("jwt-1\n")
    monkeypatch.setenv("KUBEFLOW_TRAINER_STATUS_URL", receiver.url)
    monkeypatch.setenv("KUBEFLOW_TRAINER_STATUS_TOKEN", str(token))
    return token


def test_kubeflow_hears_how_far_the_run_is(course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any) -> None:
    run = course()
    reporter = opened(run, format="kubeflow", every_seconds=0)
    reporter.report_event(run.tell(RunSubmitted(trainer="flights", max_steps=100, total_steps=100, epochs=2)))
    reporter.report_event(run.tell(RunStarted(device="cpu"), step=0))
    for step in (10, 20):
        reporter.report_event(run.tell(Metrics(metrics={"train/loss": step / 100}), step=step))
    status = receiver.requests[-1].json["trainerStatus"]
    # Ten steps a second, as the events' times have it.
    assert status == {
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
    reporter.report_event(run.tell(RunSucceeded(), step=50))
    assert receiver.requests[-1].json["trainerStatus"]["progressPercentage"] == 100


def test_kubeflow_is_told_at_most_every_so_many_seconds_but_always_of_the_end(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any
) -> None:
    run = course()
    reporter = opened(run, format="kubeflow", every_seconds=5)
    for step in range(1, 13):  # one a second
        reporter.report_event(run.tell(Progress(), step=step))
    reporter.report_event(run.tell(RunSucceeded(), step=12))
    told = [request.json["trainerStatus"]["metrics"][0]["value"] for request in receiver.requests]
    assert told == ["1", "6", "11", "12"]


def test_kubeflow_is_told_again_after_a_failure(
    course: MakeCourse, receiver: Receiver, answer: Answer, trainjob: Path, opened: Any
) -> None:
    run = course()
    reporter = opened(run, format="kubeflow")
    event = run.tell(Metrics(metrics={"train/loss": 0.5}), step=1)
    receiver.answers.append(answer(status=503))
    with pytest.raises(TransientError):
        reporter.report_event(event)
    reporter.report_event(event)
    assert receiver.requests[0].body == receiver.requests[1].body


def test_kubeflow_gets_the_token_that_its_file_has_now(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any
) -> None:
    run = course()
    reporter = opened(run, format="kubeflow", every_seconds=0)
    reporter.report_event(run.tell(Progress(), step=1))
    trainjob.write_text("jwt-2")
    reporter.report_event(run.tell(Progress(), step=2))
    assert [request.headers["authorization"] for request in receiver.requests] == ["Bearer jwt-1", "Bearer jwt-2"]


def test_kubeflow_may_know_the_pod_later(
    course: MakeCourse, receiver: Receiver, answer: Answer, trainjob: Path, opened: Any
) -> None:
    run = course()
    receiver.answers.append(answer(status=403))
    with pytest.raises(TransientError, match="403"):
        opened(run, format="kubeflow").report_event(run.tell(Progress(), step=1))


def test_the_names_of_kubeflows_releases_count_first(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", receiver.url.replace("hook", "released"))
    run = course()
    opened(run, format="kubeflow").report_event(run.tell(Progress(), step=1))
    (request,) = receiver.requests
    assert request.path == "/released"
    assert "authorization" not in request.headers  # that token is for the other server


def test_the_token_of_the_cluster_goes_nowhere_else(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any
) -> None:
    run = course()
    opened(run, format="kubeflow", url=receiver.url).report_event(run.tell(Progress(), step=1))
    assert "authorization" not in receiver.requests[0].headers


def test_metrics_keep_the_limits_of_a_trainjob(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any
) -> None:
    run = course()
    metrics: dict[str, float | None] = {f"{index}/{'x' * 100}": 1 / 3 for index in range(400)}
    opened(run, format="kubeflow").report_event(run.tell(Metrics(metrics={"bad": None, **metrics}), step=1))
    sent = receiver.requests[0].json["trainerStatus"]["metrics"]
    assert len(sent) == 256
    assert all(1 <= len(item["name"]) <= 64 and 1 <= len(item["value"]) <= 64 for item in sent)
    assert {"name": "bad", "value": "nan"} in sent


def test_metrics_that_a_trainjob_would_give_one_name_are_all_there(
    course: MakeCourse, receiver: Receiver, trainjob: Path, opened: Any
) -> None:
    run = course()
    metrics: dict[str, float | None] = {"n" * 64 + "a": 1.0, "n" * 64 + "b": 2.0, "currentStep": 3.0}
    opened(run, format="kubeflow").report_event(run.tell(Metrics(metrics=metrics), step=7))
    sent = receiver.requests[0].json["trainerStatus"]["metrics"]
    assert {item["value"] for item in sent} >= {"7", "1.0", "2.0", "3.0"}
    assert {"name": "currentStep", "value": "7"} in sent


def test_outside_of_a_trainjob_kubeflow_is_given_up(
    course: MakeCourse, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATUS", "SERVER"):
        monkeypatch.delenv(f"KUBEFLOW_TRAINER_{name}_URL", raising=False)
    with pytest.raises(FatalError, match="no container of a TrainJob"):
        opened(course(), format="kubeflow")


def test_a_missing_file_of_certificates_is_told_at_once(course: MakeCourse, tmp_path: Path, opened: Any) -> None:
    with pytest.raises(FatalError, match="there are no certificates in"):
        opened(course(), url="https://localhost", ca_file=tmp_path / "ca.crt")
