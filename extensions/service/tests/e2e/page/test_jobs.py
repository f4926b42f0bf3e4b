"""The table of jobs, and the way into it."""

from typing import Any

from served import TOKEN

ROWS = "[...document.querySelectorAll('.jobs tbody tr:not([hidden])')].map((row) => row.dataset.run)"


def cell(run_id: str, name: str) -> str:
    return f'document.querySelector(\'tr[data-run="{run_id}"] [data-label="{name}"]\').textContent'


class TestTheTable:
    def test_shows_the_newest_jobs_first_and_how_they_stand_and_asks_the_service_alone(
        self, visit: Any, service: Any
    ) -> None:
        tab = visit()
        assert [one for one in tab.js(ROWS) if not one.startswith("old")][-3:] == ["under-way", "failed", "finished"]
        assert tab.js(cell("finished", "Status")) == "succeeded"
        assert tab.js(cell("finished", "Progress")) == "60 / 60100 %"
        assert tab.js(cell("finished", "Attempt")) == "1"
        assert tab.js(cell("failed", "Status")).startswith("failed")
        assert "onerror" in tab.js(cell("failed", "Status"))  # its reason
        assert "the second line" not in tab.js(cell("failed", "Status"))
        assert tab.js(cell("under-way", "Status")) == "running"
        assert tab.js(cell("under-way", "Last heartbeat")).endswith(("ago", "just now"))
        bar = "document.querySelector('tr[data-run=finished] progress')"
        shown = tab.js(f"[{bar}.max, {bar}.value, {bar}.getAttribute('aria-valuetext')]")
        assert shown == [60, 60, "100 %, step 60 of 60"]
        assert tab.complaints() == []
        assert [one for one in tab.requests() if not one.startswith(service.url + "/")] == []

    def test_is_filtered_by_its_address_so_that_the_way_back_works_and_tells_how_that_is_written(
        self, visit: Any
    ) -> None:
        tab = visit()
        everything = tab.js(ROWS)
        tab.js("document.querySelector('.filters select').value = 'failed'")
        tab.js("document.querySelector('.filters select').dispatchEvent(new Event('change'))")
        tab.until(f"{ROWS}.join() === 'failed'")
        assert tab.js("location.hash") == "#/jobs?status=failed"
        tab.js("history.back()")
        tab.until(f"{ROWS}.length === {len(everything)}")
        assert tab.js("document.querySelector('.filters select').value") == ""
        tab.enter(".filters label.end input", "unde")
        assert tab.js(ROWS) == ["under-way"]
        tab = visit()
        label, used = (f"document.querySelectorAll('.filters input[placeholder]')[{number}]" for number in (0, 1))
        tab.js(f"{label}.value = 'team'; {label}.dispatchEvent(new Event('change'))")
        assert tab.js(f"{label}.validationMessage") == "A label is written as key=value."
        assert tab.js("location.hash") == "#/jobs"
        tab.js(f"{label}.value = ''; {used}.value = 'none>=1.0'; {used}.dispatchEvent(new Event('change'))")
        tab.until("document.querySelector('.empty').textContent.startsWith('No job is like this')")
        assert tab.js("location.hash") == "#/jobs?plugin=none%3E%3D1.0"
        assert tab.js("document.querySelector('.pages .note').textContent").endswith("of which it is not known")

    def test_has_pages(self, visit: Any) -> None:
        tab = visit()
        first = tab.js(ROWS)
        assert len(first) == 50
        tab.js("[...document.querySelectorAll('.pages a')].find((one) => one.textContent === 'Older jobs').click()")
        tab.until(f"{ROWS}.includes('old-000')")
        second = tab.js(ROWS)
        assert len(second) >= 10
        assert not {*first} & {*second}
        tab.js("[...document.querySelectorAll('.pages a')].find((one) => one.textContent === 'Newest jobs').click()")
        tab.until(f"{ROWS}.includes('finished')")

    def test_takes_in_what_is_new_without_moving_the_focus(self, visit: Any, service: Any) -> None:
        tab = visit()
        tab.js("document.querySelector('tr[data-run=finished] a').focus()")
        tab.js(  # the next job's news takes the place of the last one's
            "window.told = []; new MutationObserver(() => told.push(announcer.textContent))"
            ".observe(announcer, {childList: true, characterData: true, subtree: true})"
        )
        service.submit("newcomer", max_steps=2, checkpoint_every=0, hyperparams={"wait_at": 1})
        tab.until(f"{ROWS}[0] === 'newcomer'")
        service.let_go("newcomer")
        assert tab.js("document.activeElement.textContent") == "finished"
        tab.until(f"{cell('newcomer', 'Status')} === 'succeeded'")
        tab.until("told.some((text) => text.includes('newcomer: succeeded'))")
        assert tab.js("document.activeElement.textContent") == "finished"


class TestTheToken:
    def test_is_asked_for_kept_for_the_session_and_asked_again_when_wrong_or_when_the_service_was_away(
        self, open_tab: Any, closed_service: Any
    ) -> None:
        tab = open_tab(f"{closed_service.url}/")
        tab.until("document.querySelector('#token-dialog').open")
        assert tab.js("document.activeElement.id") == "token-field"
        tab.type("not-the-token")
        tab.key("Enter")
        tab.until("document.querySelector('#token-mistake').textContent.includes('does not accept')")
        tab.until("document.querySelector('#token-dialog').open")
        tab.type(TOKEN)
        tab.key("Enter")
        tab.until("!!document.querySelector('.empty pre')")
        curl = tab.js("document.querySelector('.empty pre').textContent")
        assert curl.startswith(f"curl {closed_service.url}/v1/jobs ")
        assert TOKEN not in tab.js("document.documentElement.outerHTML")
        tab.call("Page.reload")
        tab.until("!!document.querySelector('.empty pre')")
        assert not tab.js("document.querySelector('#token-dialog').open")
        assert tab.js("localStorage.length") == 0
        closed_service.stop()
        tab.until("document.querySelector('.banner').textContent.includes('cannot be reached')")
        assert tab.js("document.querySelector('.banner').getAttribute('role')") == "alert"
        closed_service.start()
        tab.js("document.querySelector('.banner button')?.click()")
        tab.until("document.querySelector('.banner').textContent === ''")
