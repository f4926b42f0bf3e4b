"""The page of ``hostcore report`` in a real browser."""

import base64
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hostcore
from hostcore.cli import cli

#: That of conftest.py.
Tab = Any
NAME = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"

#: A picture of one pixel.
DOT = (
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c"
    "49444154789c63105030000000a4006134667d720000000049454e44ae426082"
)

TRAINER = f"""
import math
from pathlib import Path
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self): return {{}}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, ctx):
        step = ctx.run_state.step + 1
        if step == ctx.hyperparams.get("fail_at"):
            raise ValueError({NAME!r})
        wave = math.nan if step == 50 else math.sin(step * step)
        return StepResult(metrics={{"loss": 4 / step, "wave": wave, {NAME!r}: 1.0}})
    def validate_step(self, ctx): return StepResult(metrics={{"loss": 5 / max(ctx.run_state.step, 1)}})
    def generate_sample(self, output_dir, request):
        Path(output_dir, "words.txt").write_text("<b>once</b> upon a time")
        Path(output_dir, "dot.png").write_bytes(bytes.fromhex({DOT!r}))
    def state_dict(self): return {{}}
    def load_state_dict(self): pass
"""
JOB: dict[str, Any] = {
    "run_id": "pictured",
    "trainer": "pictured_trainer:Trainer",
    "device": "cpu",
    "terminal": False,
    "mock_batches": [1, 2, 3, 4],
    "validation": {"source": "mock", "num_rows": 4, "batch_size": 2},
    "max_steps": 200,
    "metric_every": 1,
    "validate_every": 50,
    "checkpoint_every": 40,
    "sample_every": 100,
    "samples": [{"prompt": NAME}],
}


RUNS = ("pictured", "failed", "often")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages: of a run that has ended well after two attempts, of one that has failed, and of one with many attempts."""
    folder = tmp_path_factory.mktemp("pictured")
    (folder / "pictured_trainer.py").write_text(TRAINER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCORE_RUNS_DIR", str(folder / "runs"))
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        assert hostcore.run({**JOB, "max_steps": 120}).status == "succeeded"
        assert hostcore.run(JOB).status == "succeeded"
        assert hostcore.run({**JOB, "run_id": "failed", "hyperparams": {"fail_at": 70}}).status == "failed"
        for max_steps in (100, 101, 102, 160, 200):
            assert hostcore.run({**JOB, "run_id": "often", "max_steps": max_steps}).status == "succeeded"
        for run_id in RUNS:
            assert CliRunner().invoke(cli, ["report", run_id], catch_exceptions=False).exit_code == 0
    return {run_id: folder / f"{run_id}.html" for run_id in RUNS}


@pytest.fixture
def visit(open_tab: Callable[..., Tab], reports: dict[str, Path]) -> Callable[..., Tab]:
    """``visit("pictured", width=400, dark=True)``: a report, opened from its file and loaded."""

    def go(run_id: str = "pictured", *, scripts: bool = True, **how: Any) -> Tab:
        tab = open_tab(reports[run_id].as_uri(), scripts=scripts, **how)
        if scripts:
            tab.until("document.querySelector('.plot') !== null")
            tab.js("document.querySelector('.plot').scrollIntoView()")  # curves below the window are drawn later
            tab.until("document.querySelector('.plot clipPath') !== null")
            tab.js("window.scrollTo(0, 0)")
        return tab

    return go


FIRST = "document.querySelector('.plot')"


def middle_of_the_first_plot(tab: Tab) -> tuple[float, float, float]:
    """Its left and right edge in the window, and a height between the axes."""
    tab.js(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    box = tab.js(
        f"(({{left, right, top}}) => [left, right, top])({FIRST}.querySelector('svg').getBoundingClientRect())"
    )
    return box[0], box[1], box[2] + 100


class TestThePage:
    @pytest.mark.parametrize("run_id", ["pictured", "failed"])
    def test_loads_without_a_word_in_the_console_and_asks_for_nothing_but_itself(
        self, visit: Callable[..., Tab], reports: dict[str, Path], run_id: str
    ) -> None:
        tab = visit(run_id)
        assert tab.complaints() == []
        assert tab.requests() == [reports[run_id].as_uri()]

    def test_executes_nothing_that_the_run_has_brought_along(self, visit: Callable[..., Tab]) -> None:
        tab = visit("failed")
        assert tab.js("document.title") == "failed: failed"
        assert tab.js("document.querySelectorAll('#failure img, #failure script').length") == 0
        assert NAME in tab.js("document.querySelector('#failure').textContent")

    def test_draws_every_curve_within_its_axes(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        lines = tab.js(f"{FIRST}.querySelectorAll('path.line').length")
        box = tab.js(
            "(({x, y, width, height}) => [x, y, width, height])(document.querySelector('.plot path.line').getBBox())"
        )
        size = tab.js(f"{FIRST}.querySelector('svg').viewBox.baseVal.width")
        assert lines == 2  # training and validation
        assert 50 < box[0] < 80
        assert size - 40 < box[0] + box[2] < size
        assert box[3] > 100

    def test_has_the_same_curves_without_scripts(self, visit: Callable[..., Tab]) -> None:
        tab = visit(scripts=False)
        count = "document.querySelectorAll('.plot path.line').length"
        assert tab.call("Runtime.evaluate", expression=count)["result"]["value"] >= 5
        hidden = "getComputedStyle(document.querySelector('#controls')).display"
        assert tab.call("Runtime.evaluate", expression=hidden)["result"]["value"] == "none"

    @pytest.mark.parametrize("width", [360, 1280])
    def test_labels_of_attempts_that_begin_close_to_each_other_are_apart(
        self, visit: Callable[..., Tab], width: int
    ) -> None:
        tab = visit("often", width=width)
        labels = f"[...{FIRST}.querySelectorAll('svg text')].filter((one) => one.textContent.startsWith('attempt '))"
        boxes = tab.js(f"{labels}.map((one) => one.getBoundingClientRect()).map((one) => [one.left, one.right])")
        assert tab.js(f"{FIRST}.querySelectorAll('path.attempt').length") == 4
        assert boxes
        ordered = sorted(boxes)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(ordered)), ordered

    @pytest.mark.parametrize("run_id", RUNS)
    def test_on_a_phone_a_status_is_on_one_line(self, visit: Callable[..., Tab], run_id: str) -> None:
        tab = visit(run_id, width=360)
        heights = tab.js(
            "[...document.querySelectorAll('.status')].filter((one) => one.offsetParent)"
            ".map((one) => [one.offsetHeight, parseFloat(getComputedStyle(one).fontSize)])"
        )
        assert heights
        assert all(height < 2.5 * font for height, font in heights), heights

    @pytest.mark.parametrize("width", [360, 1600])
    def test_is_as_wide_as_the_window_and_no_wider(self, visit: Callable[..., Tab], width: int) -> None:
        tab = visit(width=width)
        assert tab.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert tab.js(f"{FIRST}.getBoundingClientRect().right <= document.documentElement.clientWidth")

    def test_is_light_or_dark_as_people_like_it(self, visit: Callable[..., Tab]) -> None:
        background = "getComputedStyle(document.documentElement).backgroundColor"
        light, dark = visit(), visit(dark=True)
        assert (light.js(background), dark.js(background)) == ("rgb(255, 255, 255)", "rgb(13, 17, 23)")
        assert light.screenshot() != dark.screenshot()

    @pytest.mark.parametrize("dark", [False, True])
    def test_has_text_that_stands_out_from_its_ground(self, visit: Callable[..., Tab], dark: bool) -> None:
        tab = visit("failed", dark=dark)
        assert tab.lowest_contrast() >= 4.5

    def test_can_be_found_one_s_way_in_by_assistive_technology(self, visit: Callable[..., Tab]) -> None:
        nodes = visit().call("Accessibility.getFullAXTree")["nodes"]
        told = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in nodes if not one["ignored"]]
        roles = [role for role, _ in told]
        assert all(roles.count(role) == 1 for role in ("banner", "main", "navigation", "contentinfo"))
        assert ("heading", "Checkpoints") in told
        assert ("image", "loss") in told or ("img", "loss") in told
        assert ("slider", "Read loss step by step") in told
        assert all(
            name for role, name in told if role in ("link", "button", "checkbox", "slider", "searchbox", "table")
        )

    def test_shows_samples_with_their_pictures(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        assert "<b>once</b> upon a time" in tab.js("document.querySelector('#samples').textContent")
        assert tab.js("document.querySelector('#samples img').naturalWidth") == 1

    def test_can_be_printed_whole(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        tab.js("window.dispatchEvent(new Event('beforeprint'))")
        assert tab.js("document.querySelectorAll('details:not([open])').length") == 0
        assert base64.b64decode(tab.call("Page.printToPDF")["data"]).startswith(b"%PDF")


class TestReadingThePlots:
    def test_by_pointing_tells_the_values_at_a_step(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        left, right, y = middle_of_the_first_plot(tab)
        tab.mouse("mouseMoved", (left + right) / 2, y)
        said = tab.js(f"{FIRST}.querySelector('h3').textContent")
        step = int(said.rpartition(" ")[2])
        assert said == f"loss at step {step}"
        assert 80 < step < 120
        assert float(tab.js(f"{FIRST}.querySelector('.reading').textContent")) == pytest.approx(4 / step, rel=1e-4)
        tab.mouse("mouseMoved", 1, 1)
        assert tab.js(f"{FIRST}.querySelector('h3').textContent") == "loss "

    def test_by_dragging_enlarges_a_part_in_all_of_them(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        left, right, y = middle_of_the_first_plot(tab)
        at = left + (right - left) / 2
        tab.mouse("mousePressed", at, y, pressed=True)
        tab.mouse("mouseMoved", at + 200, y, pressed=True)
        tab.mouse("mouseReleased", at + 200, y)
        begin, end = (int(tab.js(f"document.querySelector('#{name}').value")) for name in ("from", "to"))
        assert 80 < begin < end < 160
        first = "one.querySelector('text[text-anchor=middle]').textContent"
        labels = f"[...document.querySelectorAll('.plot')].slice(0, 2).map((one) => {first})"
        assert all(begin <= int(one) <= end for one in tab.js(labels))
        tab.js("document.querySelector('#reset').click()")
        assert tab.js("document.querySelector('#from').value + '-' + document.querySelector('#to').value") == "0-200"

    def test_from_the_keyboard_tells_the_same(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        reader = f"{FIRST}.querySelector('.reader')"
        tab.js(f"{reader}.focus()")
        tab.key("Home")
        assert tab.js(f"{reader}.getAttribute('aria-valuetext')").startswith("step 1: train/loss 4, val/loss ")
        assert tab.js(f"{FIRST}.querySelector('h3').textContent") == "loss at step 1"
        assert tab.js(f"getComputedStyle({reader}).opacity") == "1"

    def test_on_a_logarithmic_axis_marks_numbers_of_every_power(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        tab.js("document.querySelector('#log').click()")
        labels = f"[...{FIRST}.querySelectorAll('text[dy=\"0.32em\"]')].map((one) => one.textContent)"
        marked = tab.js(labels)
        assert len(marked) >= 3
        assert all(f"{float(one):e}"[:8] in ("1.000000", "2.000000", "5.000000") for one in marked)
        assert tab.complaints() == []

    def test_can_be_smoothed_and_found(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        wave = "[...document.querySelectorAll('.plot')].find((one) => one.textContent.startsWith('wave'))"
        tab.js(f"{wave}.scrollIntoView()")
        tab.until(f"{wave}.querySelector('clipPath') !== null")
        lines = f"{wave}.querySelectorAll('path.line').length"
        assert tab.js(lines) == 2
        assert tab.js(f"{wave}.querySelectorAll('path.nonfinite').length") == 1
        tab.enter("#smoothing", 0)
        tab.until(f"{lines} === 1")
        tab.enter("#find", "WAV")
        assert tab.js(
            "[...document.querySelectorAll('.plot:not([hidden]) h3')].map((one) => one.textContent.trim())"
        ) == ["wave"]


class TestTheEvents:
    def test_can_be_searched_and_chosen_by_kind(self, visit: Callable[..., Tab]) -> None:
        tab = visit()
        shown = "[...document.querySelectorAll('#events tbody tr:not([hidden])')].map((row) => row.dataset.kind)"
        everything = tab.js(shown)
        tab.js("document.querySelector('#event-controls input[value=files]').click()")
        assert tab.js(shown) == [kind for kind in everything if kind != "files"]
        assert tab.js("document.querySelector('#events-shown').textContent").endswith(f"of {len(everything)} shown")
        tab.enter("#find-event", "run_succ")
        assert tab.js(shown) == ["life", "life"]
