"""The picture of the loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.merger import Entry, EventLog
from hostcore_hookspecs.events import Metrics, Validation
from hostcore_inspect import plots
from hostcore_inspect.plots import all_points, plot_loss, smooth


class TestTheLossCurve:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Callable[..., Path]:
        """``log((1, 0.5), …)``: an event log with these losses."""

        def write(*points: tuple[int, float | None]) -> Path:
            log = EventLog(tmp_path / "events.jsonl", run_id="a", attempt=1)
            for step, loss in points:
                log.append(Entry(payload=Metrics(metrics={"train/loss": loss, "lr": 1.0}), step=step, epoch=0))
            log.close()
            return tmp_path / "events.jsonl"

        return write

    def test_is_a_picture(self, log: Callable, tmp_path: Path) -> None:
        picture = tmp_path / "plots" / "loss.png"
        assert plot_loss(log((1, 3.0), (2, 2.0), (3, 1.0)), picture, title="a") is True
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_has_the_curve_of_the_validations_beside_that_of_the_training(
        self, log: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = log((1, 3.0), (2, 2.0), (3, 1.0))
        with_validations = EventLog(events, run_id="a", attempt=1)
        for step, loss in [(1, 3.5), (3, 1.25)]:
            payload = Validation(metrics={"val/loss": loss, "val/mae": 9.0}, weight=4.0)
            with_validations.append(Entry(payload=payload, step=step, epoch=0))
        with_validations.close()
        figures: list[Any] = []
        monkeypatch.setattr(plots, "_save", lambda figure, _: figures.append(figure))
        assert plot_loss(events, tmp_path / "plots" / "loss.png", title="a") is True
        (axes,) = figures[0].axes
        assert {line.get_label(): line.get_xydata().tolist() for line in axes.lines} == {
            "train/loss": [[1, 3], [2, 2], [3, 1]],
            "val/loss": [[1, 3.5], [3, 1.25]],
        }

    @pytest.mark.parametrize("points", [[], [(1, 3.0)], [(1, None), (2, None)]])
    def test_of_too_little_is_none(self, log: Callable, tmp_path: Path, points: list) -> None:
        assert plot_loss(log(*points), tmp_path / "plots" / "loss.png", title="a") is False
        assert not (tmp_path / "plots").exists()

    def test_has_the_last_loss_of_a_step_that_was_trained_twice(self, log: Callable) -> None:
        points = all_points(log((1, 3.0), (2, 2.0), (3, None), (2, 1.5), (3, 1.0)))
        assert points["train/loss"] == [(1, 3.0), (2, 1.5), (3, 1.0)]

    def test_passes_over_a_line_that_is_still_being_written(self, log: Callable) -> None:
        path = log((1, 3.0))
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:-10])
        assert all_points(path)["train/loss"] == [(1, 3.0)]

    def test_smoothed_stays_where_the_loss_is_constant(self) -> None:
        assert smooth([2.0] * 5, weight=0.9) == pytest.approx([2.0] * 5)

    def test_smoothed_begins_with_the_first_loss(self) -> None:
        assert smooth([4.0, 0.0], weight=0.9)[0] == pytest.approx(4.0)
