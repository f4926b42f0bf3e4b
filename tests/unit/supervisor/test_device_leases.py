"""Which GPUs a process may see, and the folder of their leases."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.job.load import load_job
from hostcore.job.spec import JobSpec
from hostcore.supervisor import device_leases
from hostcore.supervisor.device_leases import DeviceLeasesUnusable, device_holders, hold_devices
from hostcore.supervisor.devices import find_accelerators
from hostcore.supervisor.engine import SUPERVISOR_VARIABLE

Machine = Callable[..., dict[str, str]]
UUIDS = {"0": "GPU-11aa", "1": "GPU-22bb", "2": "GPU-22cc"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """``machine(CUDA_VISIBLE_DEVICES="1")``: the environment of a process on a machine with three GPUs."""
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\n" + "".join(f"echo '{index}, {uuid}'\n" for index, uuid in UUIDS.items()))
    command.chmod(0o755)
    return lambda **variables: {"PATH": str(tmp_path), "HOSTCORE_DEVICES_DIR": str(tmp_path / "leases"), **variables}


def spec(**keys: object) -> JobSpec:
    return load_job({"trainer": "a:B", "run_id": "a", "max_steps": 1, **keys})


class TestWhatAProcessMaySee:
    @pytest.mark.parametrize(
        ("visible", "entries"),
        [
            ("0,1,2", ["0", "1", "2"]),
            (" 2, 0 ", ["2", "0"]),
            ("GPU-22bb,GPU-1", ["GPU-22bb", "GPU-1"]),
            ("1,7,0", ["1"]),
            ("GPU-22,0", []),
            ("1,1", ["1"]),
            ("MIG-5c/1/0", ["MIG-5c/1/0"]),
            ("", []),
            ("-1", []),
            ("none", []),
        ],
    )
    def test_is_read_as_cuda_reads_it(self, machine: Machine, visible: str, entries: list[str]) -> None:
        found = find_accelerators(machine(CUDA_VISIBLE_DEVICES=visible)).found
        assert [one.entry for one in found] == entries
        assert [one.name for one in found] == [f"cuda:{number}" for number in range(len(entries))]
        assert all(one.uuid == UUIDS.get(one.entry, one.uuid) for one in found)


class TestHolding:
    def test_a_run_inside_a_worker_uses_what_that_ones_run_holds(self, machine: Machine) -> None:
        with hold_devices(spec(), machine()) as outer:
            assert outer.environment == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            inner = hold_devices(spec(), {**machine(**outer.environment), SUPERVISOR_VARIABLE: "1"})
            assert (inner.names, inner.environment) == ([], {})

    def test_the_order_of_named_devices_is_that_of_the_ranks(self, machine: Machine) -> None:
        with hold_devices(spec(devices=["cuda:2", "cpu", "cuda:0"]), machine()) as held:
            assert held.environment["CUDA_VISIBLE_DEVICES"] == "2,0"

    def test_sharing_takes_what_is_free_first(self, machine: Machine) -> None:
        with (
            hold_devices(spec(), machine()),
            hold_devices(spec(devices="auto:3", share_devices=True), machine()) as two,
        ):
            assert two.names == ["cuda:0", "cuda:1", "cuda:2"]
            assert list(two.leases) == ["cuda:1", "cuda:2"]
        assert set(device_holders(machine()).values()) == {None}

    def test_a_holder_that_another_user_has_made_up_is_not_repeated(self, machine: Machine) -> None:
        with hold_devices(spec(devices=["cuda:1"]), machine()):
            lease = Path(machine()["HOSTCORE_DEVICES_DIR"], "GPU-22bb.lease")
            for content in ('{"run_id": "\\u001b[2J", "process": {}}', "[]", "null", "{}", "\udcff"):
                lease.write_bytes(content.encode(errors="surrogateescape"))
                assert str(device_holders(machine())["cuda:1"]) == "another process"


class TestTheFolder:
    def test_is_made_for_this_user_alone(
        self, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environment = machine()
        del environment["HOSTCORE_DEVICES_DIR"]
        usual = tmp_path / "usual"
        monkeypatch.setattr(device_leases, "_USUAL_FOLDER", str(usual))
        hold_devices(spec(), environment).close()
        assert usual.stat().st_mode & 0o777 == 0o700
        usual.chmod(0o777)
        with pytest.raises(DeviceLeasesUnusable, match="others may write to it"):
            hold_devices(spec(), environment)
        usual.rename(tmp_path / "moved")
        usual.symlink_to(tmp_path / "moved")
        with pytest.raises(DeviceLeasesUnusable) as caught:
            hold_devices(spec(), environment)
        assert caught.value.file == str(usual)

    def test_one_that_is_given_is_shared_by_those_who_may_enter_it(self, machine: Machine) -> None:
        before = os.umask(0o077)
        try:
            hold_devices(spec(), machine()).close()
        finally:
            os.umask(before)
        lease = Path(machine()["HOSTCORE_DEVICES_DIR"], "GPU-11aa.lease")
        assert lease.stat().st_mode & 0o777 == 0o666

    def test_a_link_in_place_of_a_lease_is_not_followed(self, machine: Machine, tmp_path: Path) -> None:
        folder, precious = Path(machine()["HOSTCORE_DEVICES_DIR"]), tmp_path / "precious"
        precious.write_text("text")
        folder.mkdir()
        (folder / "GPU-11aa.lease").symlink_to(precious)
        with pytest.raises(DeviceLeasesUnusable):
            hold_devices(spec(), machine())
        assert precious.read_text() == "text"
