"""The limits of a control group, of both versions, as a container and a machine show them."""

from pathlib import Path

import pytest

from hostcore.supervisor.workers import control_group
from hostcore.supervisor.workers.control_group import core_quota, memory_limit

OWN = {"memory.max": "2000", "cpu.max": "150000 100000"}
UNLIMITED = {"memory.max": "max", "cpu.max": "max 100000"}
VERSION_1 = {"memory.limit_in_bytes": "2000", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}
UNLIMITED_1 = {"memory.limit_in_bytes": str(1 << 62), "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("membership", "folders", "limits"),
    [
        ("0::/a/b\n", {"a/b": OWN, ".": UNLIMITED}, (2000, 1.5)),
        ("0::/a/b\n", {".": OWN}, (2000, 1.5)),  # in a container, where a/b is not seen
        ("0::/\n", {".": UNLIMITED}, (None, None)),
        ("4:memory:/a\n3:cpu,cpuacct:/a\n", {"memory/a": VERSION_1, "cpu/a": VERSION_1}, (2000, 1.5)),
        ("4:memory:/a\n3:cpu,cpuacct:/a\n", {"memory": VERSION_1, "cpu": VERSION_1}, (2000, 1.5)),
        ("4:memory:/a\n3:cpu,cpuacct:/a\n", {"memory/a": UNLIMITED_1, "cpu/a": UNLIMITED_1}, (None, None)),
        ("", {}, (None, None)),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    membership: str,
    folders: dict[str, dict[str, str]],
    limits: tuple[int | None, float | None],
) -> None:
    for folder, files in folders.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text + "\n")
    (tmp_path / "membership").write_text(membership)
    monkeypatch.setattr(control_group, "_CGROUP", tmp_path)
    monkeypatch.setattr(control_group, "_MEMBERSHIP", tmp_path / "membership")
    assert (memory_limit(), core_quota()) == limits
