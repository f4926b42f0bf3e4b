"""What doctor makes of what its probes say. There is no GPU here, so what one would say is written down."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hostcore
from hostcore.plugins.installed import Discovered, discover
from hostcore.probe import Answer
from hostcore.supervisor import quick_checks
from hostcore.supervisor.quick_checks import OWN, size
from hostcore_builtin_plugins.extras import install_command
from hostcore_inspect.doctor import disk_probe, installed, settings, system
from hostcore_inspect.doctor.compute import device_finding, machine_findings
from hostcore_inspect.doctor.disk import disk_findings
from hostcore_inspect.doctor.finding import DoctorFinding
from hostcore_inspect.doctor.job import JobReport, for_job
from hostcore_inspect.doctor.ranks import sums_finding as ranks_finding
from hostcore_inspect.doctor.settings import settings_finding

TORCH = {"version": "2.9.0", "build": "CUDA 12.8", "threads": 8, "instructions": "AVX2", "distributed": True}
GPU = {"name": "cuda:0", "model": "NVIDIA H100", "memory_bytes": 80 << 30, "capability": "9.0"}
RIGHT = {"status": "right", "error": 1e-6, "tolerance": 1e-4, "tflops": 50.0}


def product(precision: str, **other: Any) -> dict[str, Any]:
    return {"product": {"precision": precision, **RIGHT, **other}}


def said(*lines: Mapping[str, Any], **other: Any) -> Answer:
    return Answer(lines=lines, **other)


def machine(
    *, driver: list[str], found: list[Any], reason: str | None = None, **torch: Any
) -> dict[str, DoctorFinding]:
    answer = said(
        {"torch_file": "/x/torch/__init__.py"},
        {"torch": {**TORCH, **torch}},
        product("fp32"),
        {"driver": {"version": "580.1", "devices": driver}},
        {"accelerators": found, "reason": reason},
    )
    return {one.name: one for one in machine_findings(answer)}


class TestAccelerators:
    def test_are_named_with_the_driver(self) -> None:
        found = machine(driver=["/dev/nvidia0"], found=[GPU])["accelerators"]
        assert (found.status, found.finding) == ("ok", "cuda:0 NVIDIA H100, driver 580.1")

    def test_that_torch_cannot_use_fail_with_its_reason(self) -> None:
        found = machine(driver=["/dev/nvidia0"], found=[], reason="The NVIDIA driver is too old")["accelerators"]
        assert found.status == "failed"
        assert "The NVIDIA driver is too old" in found.finding
        assert found.hint is not None and "CUDA 12.8" in found.hint

    def test_beside_a_torch_for_the_cpu_are_a_warning(self) -> None:
        found = machine(driver=["/dev/nvidia0"], found=[], build="CPU")["accelerators"]
        assert found.status == "warning"
        assert "a CPU build" in found.finding

    def test_that_are_hidden_on_purpose_are_fine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        found = machine(driver=["/dev/nvidia0"], found=[], reason="No CUDA GPUs are available")["accelerators"]
        assert (found.status, "CUDA_VISIBLE_DEVICES=" in found.finding) == ("ok", True)

    def test_whose_driver_hangs_fail_and_the_cpu_does_not(self) -> None:
        lines = [{"torch": TORCH}, product("fp32"), {"driver": {"version": "580.1", "devices": ["/dev/nvidia0"]}}]
        answer = said(*lines, trouble="no answer within 60 s (while starting the driver)", hung=True)
        found = {one.name: one for one in machine_findings(answer)}
        assert {name: one.status for name, one in found.items()} == {
            "torch": "ok",
            "device.cpu": "ok",
            "accelerators": "failed",
        }
        assert found["accelerators"].hung
        assert "while starting the driver" in found["accelerators"].finding


class TestDevices:
    def test_tell_their_speed_and_free_memory(self) -> None:
        memory = {"memory": {"free_bytes": 79e9, "total_bytes": 80e9}}
        absent = {"product": {"precision": "fp16", "status": "absent", "reason": "no"}}
        found = device_finding(GPU, said(memory, product("fp32"), product("bf16", tflops=600.0), absent))
        assert found.status == "ok"
        assert found.finding == "79 GB of 80 GB free; fp32 50 TFLOP/s; bf16 600 TFLOP/s; no fp16"
        assert found.products == {"fp32": "right", "bf16": "right", "fp16": "absent"}

    def test_that_compute_wrongly_fail(self) -> None:
        found = device_finding(GPU, said(product("fp32"), product("bf16", status="wrong", error=0.8, tolerance=0.1)))
        assert (found.status, found.finding.partition(":")[0]) == ("failed", "wrong results in bf16")

    def test_that_give_no_number_fail(self) -> None:
        found = device_finding(GPU, said(product("fp32", status="wrong", error=None)))
        assert (found.status, "not finite" in found.finding) == ("failed", True)

    def test_that_round_fp32_are_a_warning_that_says_how_to_stop_it(self) -> None:
        found = device_finding(GPU, said(product("fp32", status="rounded", error=1e-3)))
        assert found.status == "warning"
        assert found.hint is not None and "NVIDIA_TF32_OVERRIDE" in found.hint

    def test_whose_memory_is_taken_are_a_warning(self) -> None:
        found = device_finding(GPU, said({"memory": {"free_bytes": 1e9, "total_bytes": 80e9}}, product("fp32")))
        assert found.status == "warning"

    def test_that_break_off_fail_even_after_a_right_product(self) -> None:
        trouble = "AcceleratorError: CUDA error: unspecified launch failure (while multiplying in bf16 on cuda:0)"
        found = device_finding(GPU, said(product("fp32"), trouble=trouble, output="a\nb"))
        assert (found.status, trouble in found.finding) == ("failed", True)
        assert found.details["output"] == ["a", "b"]


SUM = {"sum": {"wrong": 0, "items": 10, "bytes": 4_000_000, "seconds": 0.001}}


class TestRanks:
    def test_that_add_up_rightly_tell_the_slowest(self) -> None:
        slow = {"sum": {**SUM["sum"], "seconds": 0.004}}
        found = ranks_finding("nccl", [said(SUM), said(slow)])
        assert (found.status, found.finding) == ("ok", "2 processes added up 4 MB in 4 ms")

    def test_that_add_up_wrongly_fail(self) -> None:
        found = ranks_finding("nccl", [said(SUM), said({"sum": {**SUM["sum"], "wrong": 7}})])
        assert (found.status, found.finding.partition(" that")[0]) == ("failed", "7 numbers")

    def test_of_which_one_fails_are_explained_by_that_one_and_not_by_those_that_wait(self) -> None:
        waiting = said(trouble="no answer within 60 s", hung=True)
        failing = said({"error": "RuntimeError: unreachable"}, trouble="RuntimeError: unreachable")
        found = ranks_finding("gloo", [waiting, failing])
        assert found.status == "failed"
        assert found.finding.startswith("rank 1 of 2 cannot add up with gloo: RuntimeError: unreachable")


class TestSettings:
    def test_are_told_without_secrets(self) -> None:
        found = settings_finding({"CUDA_VISIBLE_DEVICES": "1", "TORCH_HUB_TOKEN": "abc", "HOME": "/"})
        assert found.details["variables"] == {"CUDA_VISIBLE_DEVICES": "1", "TORCH_HUB_TOKEN": "***"}
        assert "abc" not in found.finding

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("HOSTCORE_RUN_DIR", "x", "did you mean HOSTCORE_RUNS_DIR?"),
            ("HOSTCORE_XYZZY", "x", "hostcore reads HOSTCORE_CACHE_DIR"),
            ("CUDA_LAUNCH_BLOCKING", "1", "unset CUDA_LAUNCH_BLOCKING"),
            ("OMP_NUM_THREADS", "0", "OMP_NUM_THREADS"),
            ("OMP_NUM_THREADS", "many", "OMP_NUM_THREADS"),
        ],
    )
    def test_that_are_likely_mistakes_are_warnings(self, name: str, value: str, says: str) -> None:
        found = settings_finding({name: value})
        assert found.status == "warning"
        assert found.hint is not None and says in found.hint

    def test_of_a_rank_are_a_warning_outside_of_torchrun_and_fail_if_they_do_not_fit(self) -> None:
        rank = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        found = settings_finding(rank)
        assert (found.status, "rank 1 of 2" in found.finding) == ("warning", True)
        assert settings_finding({**rank, "TORCHELASTIC_RUN_ID": "none"}).status == "ok"
        assert settings_finding({**rank, "WORLD_SIZE": "many"}).status == "failed"

    def test_of_a_rank_need_the_package_by_which_ranks_meet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hostcore_inspect.doctor.settings.discover", lambda: Discovered(refs=()))
        variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        found = settings_finding({**variables, "TORCHELASTIC_RUN_ID": "none"})
        assert (found.status, "no installed package brings them together" in found.finding) == ("warning", True)
        assert install_command("torchrun") in str(found.hint)

    def test_that_hostcore_reads_are_all_known(self) -> None:
        package = Path(hostcore.__file__).parent
        # The conformance kit has variables for the processes that it starts itself.
        sources = set(package.rglob("*.py")) - set((package / "conformance").rglob("*.py"))
        read = {name for file in sources for name in settings.re.findall(r'"(HOSTCORE_[A-Z_]+)"', file.read_text())}
        assert read - {"HOSTCORE_"} <= OWN


class TestSystem:
    def test_fewer_cores_worth_of_time_than_cores_are_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        found = system.cores_finding(64, 1.5)
        assert (found.status, found.hint) == ("warning", "set OMP_NUM_THREADS=2")
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert system.cores_finding(64, 1.5).status == "ok"

    def test_little_memory_few_files_and_little_shared_memory_are_warnings(self) -> None:
        little = os.statvfs_result((4096, 4096, 16384, 16384, 16384, 0, 0, 0, 0, 255))
        found = [system.memory_finding(10**9, None), system.files_finding(256, 1024), system.shared_finding(little)]
        assert [one.status for one in found] == ["warning"] * 3
        assert all(one.hint for one in found)

    def test_a_limit_of_the_control_group_is_what_there_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quick_checks, "memory_limit", lambda: 3_000_000_000)
        assert quick_checks.total_memory() == 3_000_000_000
        assert "a limit of the control group" in system.memory_finding(2_500_000_000, 3_000_000_000).finding

    @pytest.mark.parametrize(("count", "told"), [(25.3e9, "25.3 GB"), (64e6, "64 MB"), (1.2e12, "1.2 TB"), (0, "0 kB")])
    def test_sizes_are_short(self, count: float, told: str) -> None:
        assert size(count) == told


class TestDisk:
    def findings(self, *lines: Mapping[str, Any], **other: Any) -> dict[str, DoctorFinding]:
        return {one.name: one for one in disk_findings(said(*lines, **other), Path("/data/runs"))}

    def space(self, free: float, names: int | None = 9) -> DoctorFinding:
        return self.findings({"space": {"free_bytes": free, "total_bytes": 1e12, "free_names": names}})["disk.space"]

    def test_that_is_full_or_has_no_more_names_fails(self) -> None:
        assert [self.space(1e6).status, self.space(5e9).status, self.space(5e11).status] == ["failed", "warning", "ok"]
        assert (self.space(5e11, names=0).status, self.space(5e11, names=None).status) == ("failed", "ok")

    @pytest.mark.parametrize(
        ("kind", "status"), [("ext4", "ok"), ("tmpfs", "warning"), ("nfs4", "warning"), ("fuse.sshfs", "warning")]
    )
    def test_in_memory_or_over_the_network_is_a_warning(self, kind: str, status: str) -> None:
        assert self.findings({"kind": kind})["disk.kind"].status == status

    def test_that_takes_long_to_commit_is_a_warning(self) -> None:
        written = {"bytes": 8 << 20, "seconds": 3.0, "commit_seconds": 2.0}
        assert self.findings({"written": written})["disk.write"].status == "warning"

    def test_that_does_not_answer_fails(self) -> None:
        found = self.findings(trouble="no answer within 60 s (while looking at /data/runs)", hung=True)["disk.write"]
        assert (found.status, found.hung) == ("failed", True)

    def test_is_of_the_file_system_that_the_kernel_names(self) -> None:
        assert disk_probe.file_system(Path("/proc/self")) == "proc"


class TestInstalled:
    def test_what_hostcore_requires_is_here(self) -> None:
        assert installed.requirements_finding().status == "ok"

    def test_a_requirement_that_is_missing_or_of_another_version_fails(self, site_here: Any) -> None:
        requires = ["no-such-thing-at-all>=1", "attrs<1", 'wrong-platform; sys_platform == "none"']
        site_here.install("demanding", modules={}, entry_points="", requires=requires)
        found = installed.requirements_finding("demanding")
        assert found.status == "failed"
        assert "no-such-thing-at-all is missing" in found.finding
        assert "attrs<1 is required" in found.finding
        assert len(found.details["problems"]) == 2
        assert found.hint == install_command()

    def test_plugins_that_are_broken_or_of_another_contract_are_warnings(self, site_here: Any) -> None:
        site_here.install("broken", modules={}, entry_points="[hostcore.trainers\nx = y:Z")
        old = {"hostcore.trainers": {"old": "m:T"}}
        site_here.install("old", modules={}, entry_points=old, requires=["hostcore-hookspecs<0.5"])
        found = installed.plugins_finding(discover())
        assert found.status == "warning"
        assert any("broken is broken" in one for one in found.details["problems"])
        assert any("old 1.0 requires hostcore-hookspecs<0.5" in one for one in found.details["problems"])

    def test_the_lack_of_the_hosts_own_plugins_fails(self, tmp_path: Path) -> None:
        found = installed.plugins_finding(discover([str(tmp_path)]))
        assert (found.status, found.hint) == ("failed", install_command())


class TestForAJob:
    MACHINE = (
        DoctorFinding(name="torch", status="ok", finding=""),
        DoctorFinding(name="device.cpu", status="ok", finding=""),
        DoctorFinding(name="device.cuda:0", status="failed", finding="", hint="replace it"),
        DoctorFinding(name="ranks.gloo", status="failed", finding=""),
        DoctorFinding(name="disk.write", status="failed", finding=""),
    )

    def statuses(self, *devices: str) -> dict[str, str]:
        return {one.name: one.status for one in for_job(self.MACHINE, JobReport(findings=[], devices=devices))}

    def test_what_it_does_not_need_fails_without_harm(self) -> None:
        found = self.statuses("cpu")
        assert (found["device.cuda:0"], found["ranks.gloo"]) == ("warning", "warning")
        assert found["disk.write"] == "failed"

    def test_what_it_needs_fails(self) -> None:
        assert self.statuses("cuda:0")["device.cuda:0"] == "failed"
        assert self.statuses("cpu", "cpu")["ranks.gloo"] == "failed"

    def test_whose_devices_are_not_known_everything_counts(self) -> None:
        assert self.statuses() == {one.name: one.status for one in self.MACHINE}
