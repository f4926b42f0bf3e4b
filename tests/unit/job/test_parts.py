"""The parts of a mixture, as a job has them."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.job.names import BUILTIN

WEB = {"name": "web", "parquet_paths": ["web.parquet"], "weight": 0.7}
CODE = {"name": "code", "source": "json", "paths": ["code.jsonl"], "storage_options": {"key": {"$secret": "env:KEY"}}}


def load(*parts: Any, **keys: Any) -> Any:
    job = {"trainer": "x", "run_id": "a", "dataset": {"of": list(parts), "batch_size": 8, **keys}}
    return load_job(job, job_dir=Path("/jobs"))


def test_a_part_has_a_source_and_paths_of_its_own_and_the_keys_of_the_whole() -> None:
    data = load(WEB, CODE, columns=["text"]).dataset
    assert data.source == f"{BUILTIN}mix"
    web, code = (data.part(one) for one in data.of)
    assert (web.source, web.settings) == (f"{BUILTIN}parquet", {"parquet_paths": ["/jobs/web.parquet"]})
    assert (code.source, code.settings["paths"], code.columns) == ("json", ["/jobs/code.jsonl"], ("text",))
    assert [one.weight for one in data.of] == [0.7, 1.0]


@pytest.mark.parametrize(
    ("parts", "pointer", "message"),
    [
        ([WEB, {**CODE, "weight": 0}], "/dataset/of/1/weight", "expected a number above 0, found 0"),
        ([WEB, {**CODE, "weight": -1}], "/dataset/of/1/weight", "expected a number above 0, found -1"),
        ([WEB, {**CODE, "name": "web"}], "/dataset/of/1/name", '"web" is the name of two parts'),
        ([WEB, {**CODE, "name": "a b"}], "/dataset/of/1/name", "expected a name of letters"),
        ([WEB, {"source": "csv", "paths": "a"}], "/dataset/of/1/name", '"name" is missing'),
        ([WEB, {"name": "code"}], "/dataset/of/1/source", "names no source"),
        ([WEB, {"name": "code", "source": "mix", "of": [CODE]}], "/dataset/of/1/of", "cannot be part of another one"),
        ([WEB, {**CODE, "weight": {"$secret": "env:A"}}], "/dataset/of/1/weight", "a reference to a secret may only"),
        ([], "/dataset/of", "at least 1 element"),
    ],
)
def test_a_mistake_is_one_error_with_its_place(parts: Any, pointer: str, message: str) -> None:
    with pytest.raises(Errors) as raised:
        load(*parts)
    assert next((one.pointer, message in one.message) for one in raised.value.errors) == (pointer, True)
