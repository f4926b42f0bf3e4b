"""Where a job is to be copied to is looked at before it runs."""

from typing import Any

import pytest

from hostcore.job.load import load_job
from hostcore.supervisor.remote.mirror import require_places
from hostcore_builtin_plugins.stores.errors import StoreError

JOB = {"trainer": "somewhere:Trainer", "max_steps": 1}


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"uploaders": ["fsspec"]}, "store.none", "/uploaders/0"),
        ({"uploaders": ["http", {"use": "fsspec", "uri": "foo://x/y"}]}, "store.scheme", "/uploaders/1/uri"),
        ({"uploaders": ["fsspec"], "checkpoint_base_uri": "s4://x/y"}, "store.scheme", "/checkpoint_base_uri"),
    ],
    ids=["nowhere", "its own", "the mirror"],
)
def test_a_place_that_there_is_not_is_refused(change: dict[str, Any], code: str, pointer: str) -> None:
    with pytest.raises(StoreError) as caught:
        require_places(load_job({**JOB, **change}))
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
    assert caught.value.hint


def test_places_that_there_may_be_are_not_asked() -> None:
    uploaders = [{"use": "fsspec", "uri": "s3://nobody-knows/runs"}, {"use": "fsspec", "uri": "/nowhere/at/all"}]
    require_places(load_job({**JOB, "uploaders": uploaders}))
