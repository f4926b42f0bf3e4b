"""The page where a job is submitted, and that of the plugins."""

import json
from pathlib import Path
from typing import Any

SAID = "document.querySelector('.said').textContent"


def button(name: str) -> str:
    return f"[...document.querySelectorAll('button')].find((one) => one.textContent === '{name}')"


def job(run_id: str) -> dict[str, Any]:
    keys = {"trainer": "paced", "device": "cpu", "terminal": False, "mock_batches": [1], "max_steps": 1}
    return {"run_id": run_id, **keys}


class TestSubmitting:
    def test_twice_in_a_moment_makes_one_job_and_validating_makes_none(self, visit: Any, service: Any) -> None:
        tab = visit("#/submit")
        tab.enter("textarea", json.dumps(job("only-validated")))
        tab.js(f"{button('Validate')}.click()")
        tab.until(f"{SAID}.includes('It can be submitted')")
        assert "trainer paced (paced-trainer 1.0)" in tab.js(SAID)
        assert "only-validated" not in [one["run_id"] for one in service.ask("/v1/jobs")["jobs"]]
        text = json.dumps({**job(""), "owner": "twice"})
        tab.enter("textarea", text)
        # The second click comes before the first is answered; and whatever it sends has the same key.
        tab.js(f"{{ const one = {button('Submit')}; one.click(); one.click(); }}")
        tab.until("location.hash.startsWith('#/jobs/paced-')")
        assert len(service.ask("/v1/jobs?owner=twice")["jobs"]) == 1
        tab.until("document.activeElement.localName === 'h1'")

    def test_what_is_wrong_is_told_with_its_place(self, visit: Any) -> None:
        tab = visit("#/submit")
        wrong = {"trainer": "paced", "max_stepz": 3, "dataset": {"batch_size": "<img>"}}
        tab.enter("textarea", json.dumps(wrong, indent=2))
        tab.js(f"{button('Submit')}.click()")
        tab.until(f"{SAID}.includes('/max_stepz')")
        told = tab.js(SAID)
        assert "/max_stepz, line 3" in told
        assert "/dataset/batch_size, line 5" in told
        assert 'Did you mean "max_steps"?' in told
        tab.js(f"{button('line 5')}.click()")
        chosen = "(({ value, selectionStart, selectionEnd }) => value.slice(selectionStart, selectionEnd))"
        assert tab.js(f"{chosen}(document.activeElement)") == '    "batch_size": "<img>"'
        tab.enter("textarea", '{"trainer": ')
        tab.js(f"{button('Validate')}.click()")
        tab.until(f"{SAID}.includes('thing is wrong')")
        assert tab.js("document.activeElement.classList.contains('said')")

    def test_a_file_is_opened_or_dropped(self, visit: Any, tmp_path: Path) -> None:
        tab = visit("#/submit")
        file = tmp_path / "job.json"
        file.write_text('{"trainer": "from a file"}')
        root = tab.call("DOM.getDocument")["root"]["nodeId"]
        field = tab.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
        tab.call("DOM.setFileInputFiles", files=[str(file)], nodeId=field)
        tab.until("document.querySelector('textarea').value.includes('from a file')")
        tab.js("""{
            const dropped = new DataTransfer();
            dropped.items.add(new File(['{"trainer": "dropped"}'], "other.json"));
            const event = new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true });
            document.querySelector("textarea").dispatchEvent(event);
        }""")
        tab.until("document.querySelector('textarea').value.includes('dropped')")
        tab.call("Page.reload")
        tab.until("document.querySelector('textarea')?.value.includes('dropped')")  # a draft is not lost


class TestThePlugins:
    def test_are_listed_and_found(self, visit: Any) -> None:
        tab = visit("#/plugins")
        rows = "[...document.querySelectorAll('tbody tr:not([hidden])')].map((row) => row.cells[0].textContent)"
        assert {"paced", "local", "parquet"} <= {*tab.js(rows)}
        tab.enter(".filters label.end input", "paced")
        assert tab.js(rows) == ["paced"]
        assert tab.complaints() == []
