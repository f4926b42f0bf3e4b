"""A Ctrl-C that no command hears."""

from collections.abc import Callable

import pytest


def test_it_ends_the_command_without_a_word(hostcore: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hostcore.runs.summary.list_runs", interrupted)
    said = hostcore("list")
    assert (said.code, said.out, said.err) == (130, "", "")
