import pytest

from hostcore_builtin_plugins.control_characters import OutputFilter, visible

SHOWN = {
    "\x1b]0;own\x07": r"\x1b]0;own\x07",
    "\x1b]8;;http://evil\x1b\\link": r"\x1b]8;;http://evil\x1b\link",
    "\x1b[31mred": r"\x1b[31mred",
    "a\rb\x08\x7f\x00": r"a\rb\x08\x7f\x00",
    "\x9b2J\x85": r"\x9b2J\x85",
    "\u202eright\u2066\u2069\u2028": r"\u202eright\u2066\u2069\u2028",
    "file-\udcff": r"file-\udcff",
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=list(SHOWN.values()))
def test_control_characters_are_escaped_as_python_writes_them(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_other_text_stays_as_it_is() -> None:
    text = "größer 損失 ⠋ 10%|██▌ | عربى C:\\new\n\tindented"
    assert visible(text) == text


def test_a_text_of_one_line_begins_no_other() -> None:
    assert visible("key\n    hint: rm\t-rf", one_line=True) == r"key\n    hint: rm\t-rf"


class TestOutputOnATerminal:
    @pytest.fixture
    def output(self) -> OutputFilter:
        return OutputFilter(terminal=True)

    def test_keeps_its_colours_which_end_with_the_line(self, output: OutputFilter) -> None:
        assert output.feed("\x1b[1;31mred\nplain\n") == "\x1b[1;31mred\x1b[0m\nplain\n"
        assert output.feed("\x1b[38;5;0mdark\x1b[m\n") == "\x1b[38;5;0mdark\x1b[m\n"
        assert output.feed("\x1b[32mgreen") + output.finish() == "\x1b[32mgreen\x1b[0m"

    @pytest.mark.parametrize(
        "order", ["\x1b[2J", "\x1b[?25l", "\x1b[1A", "\x1b[>4m", "\x1bc", "\x1b(0", "\x9b31m", "\x08"]
    )
    def test_may_do_nothing_else(self, output: OutputFilter, order: str) -> None:
        assert output.feed(f"a{order}b") + output.finish() == f"a{visible(order)}b"

    def test_may_redraw_its_line(self, output: OutputFilter) -> None:
        bar = "\r 10%|█ \r 20%|██ \n"
        assert output.feed(bar) == bar

    def test_in_pieces_is_the_same(self, output: OutputFilter) -> None:
        text = "\x1b[1;31mred\r\n\x1b]0;own\x07\r 5%\x1b[0m\x1b["
        whole = output.feed(text) + output.finish()
        pieces = OutputFilter(terminal=True)
        assert "".join(map(pieces.feed, text)) + pieces.finish() == whole

    def test_does_not_hold_back_an_endless_sequence(self, output: OutputFilter) -> None:
        assert output.feed("\x1b[" + "1;" * 1000)


class TestOutputInAFile:
    @pytest.fixture
    def output(self) -> OutputFilter:
        return OutputFilter(terminal=False)

    def test_has_no_colours(self, output: OutputFilter) -> None:
        assert output.feed("\x1b[31mred\x1b[0m \x1b]0;own\x07\n") == "red \\x1b]0;own\\x07\n"

    def test_has_a_line_for_each_state_of_a_progress_bar(self, output: OutputFilter) -> None:
        assert output.feed("training\r 10%\r 20%\r\ndone\n") == "training\n 10%\n 20%\ndone\n"
