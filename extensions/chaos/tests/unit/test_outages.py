"""An outage is in the way of every other uploader, for its time, and once per run."""

from pathlib import Path

import pytest

from hostcore_chaos.outages import Outages
from hostcore_chaos.record import FaultRecord
from hostcore_hookspecs import TransientError, UploadContext


def opened(run_dir: Path, *faults: str) -> Outages:
    """The uploader in a new attempt; raises as the opening of another uploader does."""
    outages = Outages(Outages.Settings(faults=faults))
    context = UploadContext(run_id="a", run_dir=str(run_dir), base_uri=None, is_canceled=bool)
    next(outages.around_open(context))
    return outages


def test_nothing_is_opened_or_uploaded_while_the_store_is_down(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"the store is down: injected fault store-down@0s\.\.9000s"):
        opened(tmp_path, "store-down@0s..9000s")
    (line,) = FaultRecord(str(tmp_path), "uploads").lines()
    assert (line["fault"], line["position"]) == ("store-down@0s..9000s", 0)


def test_before_and_after_everything_is_passed_on(tmp_path: Path) -> None:
    outages = opened(tmp_path, "store-down@9000s..9001s")
    next(outages.around_upload())
    assert FaultRecord(str(tmp_path), "uploads").lines() == []


def test_an_outage_of_an_earlier_attempt_is_over_unless_every_attempt_has_it(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(TransientError, match="every"):
            opened(tmp_path, "store-down@0s..9000s,every")
    next(opened(tmp_path, "store-down@0s..9000s").around_upload())
