"""Who cannot see, point, or bear bright light or motion, and who has a small window, can use the page as well."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

PAGES = ["#/jobs", "#/jobs/finished", "#/jobs/failed", "#/plugins", "#/submit"]
NAMED = {"link", "button", "checkbox", "slider", "searchbox", "textbox", "combobox", "spinbutton", "table"}
NAMED |= {"progressbar"}
LANDMARKS = ("banner", "main", "navigation", "contentinfo")
FOCUSED = """(() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const seen = box.bottom > 0 && box.top < innerHeight && box.width > 0;
  return [one.localName, one.textContent.trim().slice(0, 40), style.outlineStyle !== "none", seen];
})()"""


@pytest.mark.parametrize("page", PAGES)
def test_every_page_tells_what_everything_is_stands_out_and_fits_its_window(
    visit: Any, page: str, tmp_path: Path
) -> None:
    tab = visit(page)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    told = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in nodes if not one["ignored"]]
    roles = [role for role, _ in told]
    assert [roles.count(role) for role in LANDMARKS] == [1, 1, 1, 1]
    assert [one for one in told if one[0] in NAMED and not one[1].strip()] == []
    assert [one for one in told if one[0] in ("img", "image") and not one[1].strip()] == []
    seen = "[...document.querySelectorAll('h1, h2, h3, h4')].filter((one) => one.checkVisibility())"
    levels = tab.js(f"{seen}.map((one) => Number(one.localName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert tab.js("[...document.querySelectorAll('table')].filter((one) => !one.caption?.textContent).length") == 0
    assert tab.js("[...document.querySelectorAll('th')].filter((one) => !one.scope).length") == 0
    statuses = "[...document.querySelectorAll('.status')]"
    assert tab.js(f"{statuses}.filter((one) => !one.textContent || !one.querySelector('svg')).length") == 0
    ids = tab.js("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len({*ids})
    assert tab.js("document.documentElement.lang") == "en"
    for scheme in ("light", "dark"):
        tab.prefer({"prefers-color-scheme": scheme})
        assert tab.lowest_contrast() >= 4.5, scheme
    badges = "[...document.querySelectorAll('.status')].filter((one) => one.offsetParent)"
    for name, width, scale in (("narrow", 360, 1), ("zoomed", 640, 2), ("wide", 1600, 1)):
        tab.resize(width, scale=scale)
        tab.until(f"innerWidth === {width}")
        (tmp_path / f"{name}.png").write_bytes(tab.screenshot())
        assert tab.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        assert tab.js("document.querySelector('h1').getBoundingClientRect().right <= innerWidth"), name
        heights = tab.js(f"{badges}.map((one) => [one.offsetHeight, parseFloat(getComputedStyle(one).fontSize)])")
        assert all(height < 2.5 * font for height, font in heights), (name, "a status is on one line", heights)


class TestTheKeyboard:
    def test_skips_to_the_content_and_leads_from_the_top_of_the_table_into_a_job_and_back(self, visit: Any) -> None:
        tab = visit("#/jobs?status=failed")
        tab.key("Tab")
        assert tab.js("document.activeElement.getBoundingClientRect().left") >= 0
        tab.key("Enter")
        assert tab.js("[document.activeElement.id, location.hash]") == ["main", "#/jobs?status=failed"]
        tab.call("Page.reload")
        tab.until("document.querySelectorAll('.jobs tbody tr').length === 1")
        way = []
        for _ in range(25):
            tab.key("Tab")
            name, text, is_marked, is_visible = tab.js(FOCUSED)
            assert is_marked, (name, text)
            assert is_visible, (name, text)
            way.append(text or name)
            if text == "failed":
                break
        assert way[0] == "Skip to the content"
        assert way[1:6] == ["hostcore", "Jobs", "Sweeps", "Plugins", "Submit a job"]
        assert way[-1] == "failed"
        tab.key("Enter")
        tab.until("document.activeElement.localName === 'h1' && document.activeElement.textContent === 'failed'")
        tab.until("document.title.startsWith('failed: failed')")
        tab.js("history.back()")
        tab.until("document.activeElement.textContent === 'Jobs' && document.title === 'Jobs · hostcore'")

    def test_is_kept_within_a_question(self, visit: Any) -> None:
        tab = visit("#/jobs/under-way")
        tab.until("!document.querySelector('.top .danger').hidden")
        tab.js("document.querySelector('.top .danger').click()")
        for _ in range(6):
            tab.key("Tab")
            assert tab.js("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
        assert tab.lowest_contrast() >= 4.5


class TestHowPeopleLikeIt:
    def test_is_light_or_dark_as_the_system_is_or_as_chosen(self, visit: Any) -> None:
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light, dark = visit(), visit(dark=True)
        bright, dim = light.js(ground), dark.js(ground)
        assert bright != dim
        choose = "one.value = 'dark'; one.dispatchEvent(new Event('change'))"
        light.js(f"{{ const one = document.querySelector('#theme'); {choose}; }}")
        assert light.js(ground) == dim
        light.call("Page.reload")
        light.until("document.querySelector('#theme')?.value === 'dark'")
        assert light.js(ground) == dim

    def test_does_not_move_for_those_who_do_not_want_it(self, visit: Any) -> None:
        moving = "document.getAnimations().length"
        still = visit("#/jobs/under-way", media={"prefers-reduced-motion": "reduce"})
        still.until("document.querySelector('.top .status').textContent === 'running'")
        assert still.js(moving) == 0
        lively = visit("#/jobs/under-way", media={"prefers-reduced-motion": "no-preference"})
        lively.until(f"{moving} > 0")
