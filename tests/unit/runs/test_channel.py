"""The line between a worker and its supervisor."""

import socket
import threading

import pytest

from hostcore.runs.channel import Channel


def test_carries_messages_both_ways_in_order_and_can_be_asked_without_waiting() -> None:
    left, right = Channel.pair()
    with pytest.raises(TimeoutError):
        left.receive(0)
    left.send("ready", {"a": 1})
    left.send("failed", ["b"])
    right.send("go", {})
    assert [right.receive(5), right.receive(0)] == [("ready", {"a": 1}), ("failed", ["b"])]
    assert left.receive(5) == ("go", {})


def test_puts_messages_together_that_come_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.sendall(b'{"re')
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    theirs.sendall(b'ady":1}\n{"x":2}\n')
    assert [channel.receive(5), channel.receive(5)] == [("ready", 1), ("x", 2)]


def test_carries_messages_larger_than_its_buffers() -> None:
    left, right = Channel.pair()
    sender = threading.Thread(target=left.send, args=("invalid", "x" * 3_000_000))
    sender.start()
    kind, content = right.receive(30)
    sender.join()
    assert (kind, len(content)) == ("invalid", 3_000_000)


def test_a_closed_line_ends_after_what_was_said_and_takes_messages_to_nobody_without_an_error() -> None:
    left, right = Channel.pair()
    left.send("ready", {})
    left.close()
    assert right.receive(5) == ("ready", {})
    for wait in (5, 0):
        with pytest.raises(EOFError):
            right.receive(wait)
    right.send("stop", {})


def test_a_line_that_was_hung_up_ends_for_the_other_side_which_can_still_be_heard() -> None:
    left, right = Channel.pair()
    left.hang_up()
    with pytest.raises(EOFError):
        right.receive(5)
    right.send("failed", {})
    assert left.receive(5) == ("failed", {})
    left.send("stop", {})  # nobody hears it
    right.close()
    left.hang_up()
