"""The commit record, and the names around it."""

import hashlib
import json

import pytest

from hostcore.checkpoints import names
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.record import CommitRecord, CommittedFile

SHA = "0" * 63 + "a"
GOOD = {
    "step": 200,
    "epoch": 1,
    "final": False,
    "attempt": 2,
    "files": [{"path": "host.json", "size": 3, "sha256": SHA}, {"path": "trainer/w.bin", "size": 0, "sha256": SHA}],
}


def signed(fields):
    """A record's file with these fields, whatever they are."""
    above = json.dumps(fields, indent=2).removesuffix("\n}") + ",\n"
    return f'{above}  "sha256": "{hashlib.sha256(above.encode()).hexdigest()}"\n}}\n'.encode()


def test_a_record_comes_back_from_json():
    record = CommitRecord.from_json(signed(GOOD))
    assert record == CommitRecord(
        step=200,
        epoch=1,
        final=False,
        attempt=2,
        files=(
            CommittedFile(path="host.json", size=3, sha256=SHA),
            CommittedFile(path="trainer/w.bin", size=0, sha256=SHA),
        ),
    )
    assert CommitRecord.from_json(record.to_json()) == record
    assert record.to_json() == signed(GOOD)
    assert {**json.loads(record.to_json()), "sha256": None} == {**GOOD, "sha256": None}
    assert record.size == 3


def file(**changes):
    return {"files": [{**GOOD["files"][0], **changes}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": -1}, "'step'"),
        ({"step": 1.0}, "'step' in the record must be a whole number"),
        ({"step": True}, "'step' in the record must be a whole number"),
        ({"step": "200"}, "'step' in the record must be a whole number"),
        ({"epoch": None}, "'epoch'"),
        ({"attempt": 0}, "'attempt'"),
        ({"final": 0}, "'final' in the record must be true or false"),
        ({"files": {}}, "'files' in the record must be a list"),
        ({"files": ["host.json"]}, "file 1 is not a JSON object"),
        ({"more": 1}, "unknown key 'more'"),
        (file(size=-1), "'size'"),
        (file(size=2**70), "not a commit record"),
        (file(sha256="A" * 64), "sha256"),
        (file(sha256="a" * 63), "sha256"),
        (file(path=""), "plain path"),
        (file(path="/etc/passwd"), "plain path"),
        (file(path="../x"), "plain path"),
        (file(path="a/../../x"), "plain path"),
        (file(path="a//b"), "plain path"),
        (file(path="./a"), "plain path"),
        (file(path="a/"), "plain path"),
        (file(path="a\0"), "plain path"),
        (file(extra=1), "file 1 has an unknown key 'extra'"),
        ({"files": [GOOD["files"][0]] * 2}, "lists 'host.json' twice"),
    ],
    ids=str,
)
def test_a_record_with_anything_wrong_is_refused(tmp_path, change, message):
    path = tmp_path / "step-000200.json"
    with pytest.raises(CheckpointError, match=message) as caught:
        CommitRecord.from_json(signed({**GOOD, **change}), file=path)
    assert caught.value.code == "checkpoint.record"
    assert caught.value.file == str(path)


def test_a_record_with_a_missing_key_or_none_at_all_is_refused():
    for key in GOOD:
        with pytest.raises(CheckpointError, match=f"no '{key}'"):
            CommitRecord.from_json(signed({k: v for k, v in GOOD.items() if k != key}))
    for content in (b"", b"[]", b"null", b"{", b'{"step": NaN}', b"\xff", b"[" * 2000):
        with pytest.raises(CheckpointError, match="not a commit record"):
            CommitRecord.from_json(content)


RECORD = signed(GOOD)


def test_every_bit_of_a_record_counts():
    for position in range(8 * len(RECORD)):
        content = bytearray(RECORD)
        content[position // 8] ^= 1 << position % 8
        with pytest.raises(CheckpointError, match="not a commit record"):
            CommitRecord.from_json(bytes(content))


def test_a_record_that_is_cut_off_anywhere_or_longer_is_none():
    for content in (*(RECORD[:end] for end in range(len(RECORD))), RECORD + b"\n", b" " + RECORD, RECORD * 2):
        with pytest.raises(CheckpointError, match="not a commit record"):
            CommitRecord.from_json(content)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(GOOD).encode(),
        json.dumps(json.loads(RECORD)).encode(),
        json.dumps(json.loads(RECORD), indent=4).encode(),
        json.dumps(dict(reversed(json.loads(RECORD).items())), indent=2).encode(),
        RECORD.replace(b'"epoch": 1', b'"epoch": 2'),
        RECORD.replace(b'"epoch": 1', b'"epoch": 1.0'),
        RECORD.replace(b'  "epoch": 1,\n', b'  "epoch": 1,\n  "epoch": 1,\n'),
        RECORD.replace(b"\n", b"\r\n"),
    ],
    ids=["unsigned", "one line", "indented", "reversed", "a value", "a float", "a key twice", "line ends"],
)
def test_a_record_that_was_edited_is_none(content):
    with pytest.raises(CheckpointError, match="its own SHA-256 is missing or differs"):
        CommitRecord.from_json(content)


def test_a_step_has_one_name_of_at_least_six_digits():
    steps = {0: "step-000000", 200: "step-000200", 999_999: "step-999999", 12_345_678: "step-12345678"}
    for step, folder in steps.items():
        assert (names.folder_name(step), names.record_name(step)) == (folder, f"{folder}.json")
        assert names.step_of_folder(folder) == names.step_of_record(f"{folder}.json") == step
    others = [
        "step-200",
        "step-0000200",
        "step-00020x",
        "Step-000200",
        "step-000200 ",
        ".step-000200",
        "step-٠٠٠٢٠٠",
        "",
    ]
    for name in others:
        assert names.step_of_folder(name) is None
        assert names.step_of_record(f"{name}.json") is None


def test_hidden_names_say_whose_they_are(tmp_path):
    claim = names.Claim(tmp_path, 200, 3)
    for name in (
        claim.hidden_folder("tmp").name,
        claim.hidden_record("old").name,
        ".step-000100.json.attempt-12.pruned",
        ".step-000100.attempt-1.tmp.txt",
        "step-000300",
        ".DS_Store",
    ):
        (tmp_path / name).touch()
    assert claim.hidden_folder("tmp").name == ".step-000200.attempt-3.tmp"
    assert [(claim.attempt, claim.step) for claim in names.claims(tmp_path)] == [(12, 100), (3, 200)]
