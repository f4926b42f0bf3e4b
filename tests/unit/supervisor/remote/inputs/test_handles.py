"""The fetched inputs travel to the workers in their contract."""

from pathlib import Path

import pytest

from hostcore.runs.contract import InvalidContract, WorkerContract
from hostcore.runs.documents import read_document, write_document

CONTRACT = WorkerContract(
    trainer_plugin="mine",
    job_spec_path="/runs/a/config/run.json",
    checkpoints_dir="/runs/a/checkpoints",
    samples_dir="/runs/a/samples",
    events_path="/runs/a/logs/rank-0.attempt-1.jsonl",
    run_dir="/runs/a",
)


def test_a_contract_of_before_there_were_inputs_has_none(tmp_path: Path) -> None:
    CONTRACT.write(tmp_path / "contract.json")
    found = read_document(tmp_path / "contract.json")
    del found["inputs"]
    write_document(tmp_path / "contract.json", found)
    assert WorkerContract.read(tmp_path / "contract.json").inputs == {}


@pytest.mark.parametrize("inputs", [["/m"], {"m": 3}, "m", None])
def test_what_is_no_mapping_of_paths_is_refused(tmp_path: Path, inputs: object) -> None:
    CONTRACT.write(tmp_path / "contract.json")
    write_document(tmp_path / "contract.json", {**read_document(tmp_path / "contract.json"), "inputs": inputs})
    with pytest.raises(InvalidContract) as caught:
        WorkerContract.read(tmp_path / "contract.json")
    assert caught.value.pointer == "/inputs"
