"""The page of ``hostcore sweep report`` in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recorded_sweep
from browser import chromium, first_tab, open_tab

from hostcore_sweeps.report.page import write_page
from hostcore_sweeps.status import read_status

__all__ = ["chromium", "first_tab", "open_tab"]

#: That of ``browser``.
Tab = Any
ROWS = "[...document.querySelectorAll('#trials tbody tr')]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a sweep that has ended."""
    folder = tmp_path_factory.mktemp("looked-at")
    page = write_page(read_status(recorded_sweep.record(folder, recorded_sweep.whole_sweep())), now=1_795_260_000_000)
    (folder / "sweep.html").write_text(page)
    return folder / "sweep.html"


@pytest.fixture
def visit(open_tab: Callable[..., Tab], report: Path) -> Callable[..., Tab]:
    """``visit(dark=True)``: the report, opened from its file."""
    return lambda **how: open_tab(report.as_uri(), **how)


def test_it_loads_without_a_word_in_the_console_and_asks_for_nothing_but_itself(
    visit: Callable[..., Tab], report: Path
) -> None:
    tab = visit()
    assert tab.complaints() == []
    assert tab.requests() == [report.as_uri()]
    assert tab.js("document.title") == "recorded: finished"


def test_a_click_on_a_head_sorts_the_trials_by_their_values(visit: Callable[..., Tab]) -> None:
    tab = visit()
    tab.js(
        "[...document.querySelectorAll('#trials thead button')].find((one) => one.textContent === 'val/loss').click()"
    )
    values = tab.js(f"{ROWS}.map((row) => row.cells[2].textContent)")
    numbers = [float(value) for value in values if value != "-"]
    assert numbers == sorted(numbers)
    assert values[-2:] == ["-", "-"]  # of trials that have failed
    assert tab.js(f"{ROWS}[0].cells[0].textContent") == "best 3"
    assert tab.js("document.querySelector('#trials [aria-sort]').ariaSort") == "ascending"


def test_the_keyboard_reaches_the_order_of_the_table(visit: Callable[..., Tab]) -> None:
    tab = visit()
    tab.js("document.querySelector('#trials thead button').focus()")
    for _ in range(2):
        tab.key("Enter")
    assert tab.js(f"{ROWS}[0].cells[0].textContent") == "23"


def test_pointing_at_a_trial_shows_it_in_every_picture(visit: Callable[..., Tab]) -> None:
    tab = visit()
    tab.js("document.querySelector('#trial-3').scrollIntoView({block: 'center'})")
    x, y = tab.js("(({left, top}) => [left + 5, top + 5])(document.querySelector('#trial-3').getBoundingClientRect())")
    tab.mouse("mouseMoved", x, y)
    tab.until("document.querySelectorAll('.chosen').length >= 4")
    assert tab.js("[...document.querySelectorAll('.chosen')].every((one) => one.dataset.trial === '3')")


def test_dragging_along_an_axis_leaves_the_trials_between_alone(visit: Callable[..., Tab]) -> None:
    tab = visit(width=1280)
    svg, axis = "document.querySelector('#parallel svg')", "[...document.querySelectorAll('#parallel .axis')].at(-1)"
    tab.js(f"{svg}.scrollIntoView({{block: 'center'}})")
    x, top, bottom = tab.js(
        f"(({{left, width, top, bottom}}) => [left + width / 2, top, bottom])({axis}.getBoundingClientRect())"
    )
    rows = f"{ROWS}.filter((row) => row.checkVisibility()).map((row) => row.cells[2].textContent)"
    everything = tab.js(rows)
    assert not tab.js("document.querySelector('.reset').checkVisibility()")

    middle = (top + bottom) / 2
    tab.mouse("mousePressed", x, bottom + 5, pressed=True)
    tab.mouse("mouseMoved", x + 30, middle, pressed=True)  # off the axis, too
    tab.mouse("mouseReleased", x + 30, middle)
    left = [float(value) for value in tab.js(rows)]
    assert 0 < len(left) < len(everything)
    hidden = [float(value) for value in everything if value != "-" and float(value) not in left]
    assert max(left) < min(hidden)
    drawn = "[...document.querySelectorAll('#parallel [data-trial]:not(.out)')].map((one) => one.dataset.trial)"
    assert len(set(tab.js(drawn))) == len(left)
    assert tab.js("document.querySelector('.reset').textContent").startswith(f"{len(left)} of {len(everything)} trials")

    tab.js("document.querySelector('.reset').click()")
    assert tab.js(rows) == everything


def test_without_scripts_all_of_it_is_there(visit: Callable[..., Tab]) -> None:
    tab = visit(scripts=False)
    count = "document.querySelectorAll('.plot svg path[data-trial]').length"
    assert tab.call("Runtime.evaluate", expression=count)["result"]["value"] > 60


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(visit: Callable[..., Tab], *, dark: bool) -> None:
    assert visit(dark=dark).lowest_contrast() >= 4.5


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(visit: Callable[..., Tab], width: int) -> None:
    tab = visit(width=width)
    assert tab.js("document.documentElement.scrollWidth") <= width
