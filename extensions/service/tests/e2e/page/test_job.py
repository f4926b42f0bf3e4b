"""The page of a job: as it goes on, and when it is over."""

from typing import Any

FIRST = "document.querySelector('.plot')"
LOG = "document.querySelector('pre.log').textContent"
TITLE = "document.title"
FACTS = "[...document.querySelectorAll('[aria-label=Standing] dl div')].map((one) => one.textContent)"


def button(name: str) -> str:
    return f"[...document.querySelectorAll('button')].find((one) => one.textContent === '{name}' && !one.hidden)"


def table(name: str) -> str:
    """The rows of a table as texts."""
    rows = f"[...document.querySelectorAll('[aria-label=\"{name}\"] tbody tr')]"
    return f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))"


class TestAJobThatIsUnderWay:
    def test_shows_curves_and_log_grow_until_it_has_ended(self, visit: Any, service: Any) -> None:
        service.submit("watched", hyperparams={"wait_at": 31})
        service.wait_for("watched", "running", step=30)
        tab = visit("#/jobs/watched")
        tab.until(f"{LOG}.includes('waiting at step 31')")
        assert "hello from rank 0: <b>bold</b> red" in tab.js(LOG)
        tab.until("document.querySelector('.going').textContent.startsWith('Step 30 of 60 · 50 %')")
        tab.until(f"{FIRST}.querySelector('.legend').textContent.includes('0.133333')")
        assert tab.js("document.querySelector('input[type=number]:last-of-type').max") == "30"
        service.let_go("watched")
        tab.until(f"{TITLE}.startsWith('watched: succeeded')")
        tab.until(f"{FIRST}.querySelector('.legend').textContent.includes('0.0666667')")
        assert tab.js("document.querySelector('#announcer').textContent") == "watched: succeeded"
        tab.until("document.querySelector('[aria-label=Artifacts]').textContent.includes('result.json')")
        tab.until(f"{table('Checkpoints')}.map((row) => row[0]).join() === '60final,40,20'")
        assert tab.complaints() == []

    def test_shows_the_values_of_the_state_that_the_trainer_went_back_to(self, visit: Any, service: Any) -> None:
        stopping = {"use": "early-stopping", "monitor": "val/loss", "mode": "max", "patience": 1, "restore_best": True}
        mock = {"source": "mock", "num_rows": 4, "batch_size": 2}
        service.submit("restored", validation=mock, validate_every=20, callbacks=[stopping])
        service.wait_for("restored", "succeeded")
        tab = visit("#/jobs/restored")
        tab.until(f"{TITLE}.startsWith('restored: succeeded')")
        legend = f"{FIRST}.querySelector('.legend').textContent"
        tab.until(f"{legend}.includes('val/loss 0.25')")  # that of step 20, and not of step 40
        assert "train/loss 0.2" in tab.js(legend)
        assert "values beside names are of step 20, to which the trainer went back" in tab.js(
            "document.querySelector('.note').textContent"
        )
        metrics = service.ask("/v1/jobs/restored")["run"]["metrics"]
        assert (metrics["val/loss"], metrics["train/loss"]) == (0.25, 0.2)

    def test_is_cancelled_with_a_reason_and_resumed_from_the_keyboard(self, visit: Any, service: Any) -> None:
        service.submit("interrupted", hyperparams={"wait_at": 31})
        service.wait_for("interrupted", "running", step=30)
        tab = visit("#/jobs/interrupted")
        tab.js(f"{button('Cancel…')}.focus()")
        tab.key("Enter")
        assert tab.js("document.activeElement.id") == "cancel-reason"
        tab.key("Escape")
        assert tab.js("document.activeElement.textContent") == "Cancel…"  # nothing has happened
        assert service.ask("/v1/jobs/interrupted")["cancelling"] is False
        tab.key("Enter")
        tab.type("it is <b>enough</b>")
        tab.key("Enter")
        tab.until(f"{TITLE}.startsWith('interrupted: cancelled')")
        assert tab.js("document.activeElement.localName") in ("h1", "body")
        assert service.ask("/v1/jobs/interrupted")["status"] == "cancelled"
        tab.until("document.querySelector('[aria-label=Attempts]').textContent.includes('it is <b>enough</b>')")
        service.let_go("interrupted")
        tab.js(f"{button('Resume')}.focus()")
        tab.key("Enter")
        tab.until(f"{TITLE}.startsWith('interrupted: succeeded')")
        tab.until(f"{table('Attempts')}.map((row) => row[1]).join() === 'succeeded,cancelled'")
        tab.until(f"{FIRST}.querySelector('path.attempt') !== null")
        tab.until(f"{FACTS}.some((one) => /^Duration.* s \\(.* s in 2 attempts\\)$/.test(one))")
        assert tab.js("document.querySelector('[aria-label=\"Which log\"] select').value").endswith("attempt=2")

    def test_offers_the_log_of_every_rank_and_takes_a_cancel_back_that_fails(self, visit: Any) -> None:
        tab = visit("#/jobs/under-way")
        choice = "document.querySelector('[aria-label=\"Which log\"] select')"
        assert tab.js(f"[...{choice}.options].map((one) => one.textContent)") == [
            "rank 0, attempt 1",
            "rank 1, attempt 1",
            "the launcher",
        ]
        tab.until(f"{LOG}.includes('hello from rank 0')")
        tab.js(f"{choice}.selectedIndex = 1; {choice}.dispatchEvent(new Event('change'))")
        tab.until(f"{LOG}.includes('hello from rank 1')")
        tab.until("!document.querySelector('.danger').hidden")
        tab.call("Network.setBlockedURLs", urls=["*:cancel*"])
        tab.js(f"{button('Cancel…')}.click()")
        tab.js("document.querySelector('#cancel-dialog .danger').click()")
        tab.until("document.querySelector('.banner').textContent.startsWith('Cancelling failed')")
        assert tab.js("document.querySelector('.top .status').textContent") == "running"
        assert tab.js("document.querySelector('.top .danger').hidden") is False


class TestAJobThatIsOver:
    def test_shows_why_it_failed_and_turns_nothing_of_a_job_into_markup(self, visit: Any) -> None:
        for page in ("#/jobs", "#/jobs/finished", "#/jobs/failed"):
            tab = visit(page)
            assert "onerror" in tab.js("document.body.textContent")
            assert tab.js("document.querySelectorAll('main img, main script, main b[onerror]').length") == 0
            assert "taken" not in tab.js(TITLE)
            assert tab.complaints() == []
        told = tab.js("document.querySelector('[aria-label=Failure]').textContent")
        assert "First seen on rank 1, in paced (paced-trainer 1.0)." in told
        assert "\nthe second line of two" in tab.js("document.querySelector('[aria-label=Failure] p').innerText")
        assert "in train_step" in tab.js("document.querySelector('pre.traceback').textContent")

    def test_shows_what_it_was_and_what_it_left(self, visit: Any, service: Any) -> None:
        tab = visit("#/jobs/finished")
        tab.until("document.querySelector('[aria-label=Artifacts]').textContent.includes('config/run.json')")
        plugins = tab.js(table("Plugins of this job")) + tab.js(table("Plugins"))
        assert ["paced", "trainer", "paced-trainer", "1.0"] in plugins
        tab.until(f"{FACTS}.includes('Bestval/loss 0.0833333 at step 60')")
        tab.until(f"{table('Checkpoints')}.map((row) => row[0]).join() === '60finalbest,40,20'")
        assert tab.js(f"{table('Checkpoints')}.map((row) => row[1]).join()") == "15,10,5"  # of four steps
        assert '"max_steps": 60' in tab.js("document.querySelector('[aria-label=Configuration] pre').textContent")
        assert tab.js("document.querySelectorAll('.json-key').length") > 20
        tab.js("document.querySelector('[aria-label=Checkpoints] details').open = true")
        tab.until("document.querySelectorAll('.files a').length > 0")
        links = tab.js("[...document.querySelectorAll('.files a, [aria-label=Artifacts] a')].map((one) => one.href)")
        assert all(one.startswith(f"{service.url}/v1/jobs/finished/") for one in links)
        statuses = tab.js(f"Promise.all({links}.map((one) => fetch(one).then((answer) => answer.status)))")
        assert {*statuses} == {200}

    def test_that_there_is_not_or_that_never_began_says_so(self, open_tab: Any, service: Any) -> None:
        tab = open_tab(f"{service.url}/#/jobs/%3Cimg%20src%3Dx%3E")
        tab.until("document.querySelector('.banner')?.textContent.startsWith('There is no job')")
        assert tab.js("document.querySelector('h1').textContent") == "<img src=x>"
        tab.js("location.hash = '#/jobs/old-000'")
        tab.until("document.querySelector('pre.log')?.dataset.empty === 'Nothing was written.'")

    def test_has_curves_that_tell_their_values_from_the_keyboard(self, visit: Any) -> None:
        tab = visit("#/jobs/finished")
        tab.until(f"{FIRST}.querySelectorAll('.key').length === 2")  # training and validation
        tab.js(f"{FIRST}.querySelector('.reader').focus()")
        tab.key("Home")
        assert tab.js(f"{FIRST}.querySelector('h3').textContent") == "loss at step 1"
        told = tab.js(f"{FIRST}.querySelector('.reader').getAttribute('aria-valuetext')")
        assert told.startswith("step 1: train/loss 4, val/loss ")
        assert len(tab.js(f"{FIRST}.querySelector('.checkpoint').getAttribute('d')").split("M")) - 1 == 3


class TestWhatIsKept:
    def test_of_a_hundred_thousand_events_is_little_and_goes_on_where_a_later_attempt_began(self, visit: Any) -> None:
        tab = visit("#/submit")
        kept, later = tab.js("""(async () => {
            const { Recording } = await import("/assets/recording.js");
            const recording = new Recording(), resumed = new Recording();
            for (let step = 1; step <= 100000; step++) {
              const value = step === 77777 ? 1000 : step === 88888 ? NaN : Math.sin(step);
              recording.add({ event: "metrics", attempt: 1, step, metrics: { "train/loss": value } });
            }
            const [{ curves: [{ curve }] }] = recording.plots();
            curve.finish();
            const sorted = curve.steps.every((step, index) => !index || step > curve.steps[index - 1]);
            const measure = (attempt, step) => {
              resumed.add({ event: "metrics", attempt, step, metrics: { loss: attempt } });
            };
            for (let step = 1; step <= 50; step++) measure(1, step);
            resumed.add({ event: "run_started", attempt: 2, step: 40 });
            for (let step = 45; step <= 60; step += 5) measure(2, step);
            const [{ curves: [{ curve: later }] }] = resumed.plots();
            return [[curve.steps.length, curve.means.length, Math.max(...curve.values), curve.nonfinite, sorted,
              curve.steps[curve.steps.length - 1]], [later.steps.slice(38), later.values.slice(38), resumed.attempts]];
        })()""")
        points, means, highest, nonfinite, is_sorted, last = kept
        assert 1000 < points <= 4000
        assert 100 < means <= 1000
        assert (highest, nonfinite, is_sorted) == (1000, [88888], True)
        assert last > 99_900
        assert later == [[39, 40, 45, 50, 55, 60], [1, 1, 2, 2, 2, 2], [[2, 40]]]

    def test_of_a_log_are_the_newest_lines_as_a_terminal_leaves_them(self, visit: Any) -> None:
        tab = visit("#/submit")
        kept = tab.js("""(async () => {
            const { Lines } = await import("/assets/log.js");
            const lines = new Lines();
            lines.add("10 %\\r50 %\\r100 %\\ndone \\x1b[1;32mgreen\\x1b[0m\\r\\nhalf");
            const first = lines.toString();
            lines.add(" of it\\n" + "x\\n".repeat(20000));
            return [first, lines.lines.length, lines.dropped];
        })()""")
        assert kept == ["100 %\ndone green\nhalf", 5000, 15_003]
