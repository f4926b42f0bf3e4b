"""Reading a log on from a place in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from hostcore_engines.kubernetes import logs
from hostcore_engines.kubernetes.cluster import NotFound
from hostcore_hookspecs import FatalError

START = 1_790_000_000


class Kubelet:
    """A log as Kubernetes keeps it: lines with times, the oldest of which are gone one day."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, bytes]] = []
        self.previous: list[tuple[float, bytes]] | None = None
        self.restarts = 0
        self.uid = "uid-1"
        self.server_time: float | None = START + 100.0

    @property
    def pod(self) -> dict[str, Any]:
        status = {"containerStatuses": [{"name": "pytorch", "restartCount": self.restarts}]}
        return {"metadata": {"uid": self.uid, "namespace": "ml", "name": "x-master-0"}, "status": status}

    def prints(self, text: str | bytes, at: float) -> None:
        for line in (text.encode() if isinstance(text, str) else text).splitlines(keepends=True):
            self.lines.append((START + at, line))

    @contextlib.contextmanager
    def log(
        self, namespace: str, pod: str, container: str, *, since_seconds: int | None, previous: bool
    ) -> Iterator[Iterator[bytes]]:
        assert (namespace, pod, container) == ("ml", "x-master-0", "pytorch")
        assert self.server_time is not None
        lines = self.previous if previous else self.lines
        if lines is None:
            raise NotFound("no previous container")
        since = 0.0 if since_seconds is None else self.server_time - since_seconds
        data = b"".join(
            f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}123Z ".encode() + line
            for at, line in lines
            if at >= since
        )
        step = random.randrange(1, 50)
        yield (data[at : at + step] for at in range(0, len(data), step))

    def read(self, since: str) -> tuple[str, str]:
        """Everything from a place on."""
        texts = []
        while True:
            chunk = logs.read_pod_log(self, self.pod, "pytorch", since)  # type: ignore[arg-type]
            since = chunk.next
            if not chunk.text:
                return "".join(texts), since
            texts.append(chunk.text)


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


def test_reading_in_any_pieces_gives_the_log_once(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    monkeypatch.setattr(logs, "_CHUNK_BYTES", 61)
    text, since, told, at = "", "", "", 0.0
    for number in range(200):
        line = f"line {number}: Übung, 日本語, 🚀\r{'x' * generator.randrange(40)}\n"
        at += generator.choice([0.0, 0.1, 0.3, 0.9, -0.05])
        kubelet.prints(line.replace("\r", "~"), at)
        told += line.replace("\r", "~")
        kubelet.server_time = START + at + generator.random()
        if generator.random() < 0.3:
            piece, since = kubelet.read(since)
            text += piece
    piece, since = kubelet.read(since)
    assert text + piece == told
    assert kubelet.read(since) == ("", since)


def test_half_a_line_and_half_a_character_are_read_on(kubelet: Kubelet) -> None:
    data = "日本\n".encode()
    kubelet.lines.append((START + 1.0, data[:4]))
    first, since = kubelet.read("")
    kubelet.lines[-1] = (START + 1.0, data)
    rest, _ = kubelet.read(since)
    assert (first, rest) == ("日", "本\n")


def test_a_carriage_return_ends_no_line(kubelet: Kubelet) -> None:
    kubelet.lines.append((START + 1.0, b"10%\r20%\r2026-01-01T00:00:00Z 30%\n"))
    assert kubelet.read("")[0] == "10%\r20%\r2026-01-01T00:00:00Z 30%\n"


def test_a_log_whose_beginning_was_rotated_away_goes_on(kubelet: Kubelet) -> None:
    kubelet.prints("a\nb\n", 1.0)
    kubelet.prints("c\n", 2.0)
    text, since = kubelet.read("")
    assert text == "a\nb\nc\n"
    del kubelet.lines[:]
    assert kubelet.read(since) == ("", since)
    kubelet.prints("d\n", 5.0)
    assert kubelet.read(since)[0] == "d\n"


def test_only_what_is_new_is_asked_for(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet.prints("a\n", 90.0)
    _, since = kubelet.read("")
    asked: list[int | None] = []
    log = kubelet.log

    def spied(*place: str, since_seconds: int | None, previous: bool) -> Any:
        asked.append(since_seconds)
        return log(*place, since_seconds=since_seconds, previous=previous)

    monkeypatch.setattr(kubelet, "log", spied)
    kubelet.read(since)
    assert asked == [20]  # ten seconds old, and the margin


def test_a_container_that_was_started_again_has_its_first_log_read_to_the_end(kubelet: Kubelet) -> None:
    kubelet.prints("first\n", 1.0)
    text, since = kubelet.read("")
    kubelet.prints("last words\n", 2.0)
    kubelet.previous, kubelet.lines, kubelet.restarts = kubelet.lines, [], 1
    kubelet.prints("again\n", 3.0)
    rest, _ = kubelet.read(since)
    assert text + rest == "first\nlast words\nagain\n"
    assert kubelet.read("")[0] == "first\nlast words\nagain\n"


def test_another_pod_of_the_name_is_read_from_its_beginning(kubelet: Kubelet) -> None:
    kubelet.prints("first\n", 1.0)
    _, since = kubelet.read("")
    kubelet.uid, kubelet.lines = "uid-2", []
    kubelet.prints("second\n", 1.0)
    assert kubelet.read(since)[0] == "second\n"


@pytest.mark.parametrize("since", ["12", "uid/0/0", "uid/0/0/-1", "../0/0/0/0", "uid/٣/0/0", "uid/0/0/0\n"])
def test_what_is_no_place_is_refused(since: str) -> None:
    with pytest.raises(FatalError, match="is no place in the log"):
        logs.LogPosition.of(since)
