"""The checks of uploaders, and what a real object store makes of them."""

from __future__ import annotations

from pathlib import Path

from hostcore_conformance import check_plugin
from hostcore_conformance.check import checks_for
from hostcore_conformance.example import load_symbol

HERE = Path(__file__).resolve().parent
OF_A_STORE = ["uploader.content", "uploader.existed", "uploader.replaces", "uploader.failed", "uploader.hides_secrets"]


def test_an_object_store_behind_a_connection_that_breaks_passes() -> None:
    harness = load_symbol("uploader_stores.py:s3_bucket", HERE)
    results = check_plugin("fsspec", kind="uploader", harness=harness, only=OF_A_STORE)
    assert {result.id.partition("[")[0] for result in results} == set(OF_A_STORE)
    assert [f"{one.id}: {one.status}, {one.message}" for one in results if one.status != "passed"] == []


def test_without_a_harness_a_folder_is_read_by_its_uri(tmp_path: Path) -> None:
    results = check_plugin("fsspec", kind="uploader", settings={"uri": str(tmp_path)}, only=["uploader.*"])
    found = {result.id: result for result in results}
    assert len(found) == sum(check.kind == "uploader" for check in checks_for("uploader"))
    assert {one.id for one in results if one.status == "failed"} == set()
    assert found["uploader.names[percent]"].status == found["uploader.content[large]"].status == "passed"
    skipped = found["uploader.failed[new]"]
    assert (skipped.status, skipped.wants_example) == ("skipped", True)
    assert "give an object with fail_next()" in skipped.message
