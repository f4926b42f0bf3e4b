"""The trainable part of a module on the disk, and back."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from hostcore_toolkit import (
    ModuleCheckpointError,
    OptimizerBundle,
    build_default_adamw_bundle,
    files,
    load_trainable_module_checkpoint,
    save_trainable_module_checkpoint,
)
from hostcore_toolkit import module_checkpoint as saving


class Adapted(nn.Module):
    """A frozen layer with a trainable one beside it, and a buffer."""

    def __init__(self, seed: int = 0, rank: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, 4, generator=generator))
        self.up = nn.Parameter(torch.randn(4, rank, generator=generator))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


class Tied(nn.Module):
    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


def train(module: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None, steps: int = 3) -> list[float]:
    losses = []
    for number in range(steps):
        loss = (module(torch.full((1, 4), 1.0 + number)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return losses


def save(module: nn.Module, folder: Path, optimizer: Any = None, **other: Any) -> dict[str, Any]:
    return save_trainable_module_checkpoint(module, optimizer, folder, 7, False, **other)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


SCHEDULERS = {
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=9),
    "steps": lambda optimizer: MultiStepLR(optimizer, [2, 5]),
    "sequence": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer), CosineAnnealingLR(optimizer, T_max=5)], milestones=[2]
    ),
    "function": lambda optimizer: LambdaLR(optimizer, lambda step: 0.9**step),
    "plateau": ReduceLROnPlateau,  # its best value is infinite
}
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
}
PAIRS = [*(("adamw", kind) for kind in SCHEDULERS), *((kind, "cosine") for kind in OPTIMIZERS)]


class TestAComeback:
    @pytest.mark.parametrize(("of_optimizer", "of_scheduler"), PAIRS)
    def test_continues_the_training_bit_for_bit(self, tmp_path: Path, of_optimizer: str, of_scheduler: str) -> None:
        module, other = Adapted(seed=1), Adapted(seed=2)
        other.base.load_state_dict(module.base.state_dict())
        scaler, its_scaler = (torch.amp.GradScaler("cpu", init_scale=scale) for scale in (1024.0, 2.0))
        for one in (scaler, its_scaler):
            one._lazy_init_scale_growth_tracker(torch.device("cpu"))  # as the first step does
        optimizer = OPTIMIZERS[of_optimizer]([module.down, module.up])
        scheduler = SCHEDULERS[of_scheduler](optimizer)
        steps = of_scheduler != "plateau"
        train(module, optimizer, scheduler if steps else None)
        save(module, tmp_path, optimizer, scheduler=scheduler, scaler=scaler)
        expected = train(module, optimizer, scheduler if steps else None)

        again = OPTIMIZERS[of_optimizer]([other.down, other.up])
        schedule = SCHEDULERS[of_scheduler](again)
        loaded = load_trainable_module_checkpoint(other, again, tmp_path, scheduler=schedule, scaler=its_scaler)
        assert loaded.problems == ()
        assert train(other, again, schedule if steps else None) == expected
        assert its_scaler.get_scale() == 1024.0

    def test_takes_a_bundle_with_its_scheduler(self, tmp_path: Path) -> None:
        module, other = Adapted(), Adapted()
        bundle = build_default_adamw_bundle(module, max_steps=10)
        train(module, bundle.optimizer, bundle.scheduler)
        save(module, tmp_path, bundle)
        optimizer = torch.optim.AdamW([other.down, other.up])
        scheduler = LambdaLR(optimizer, lambda step: 1.0)
        load_trainable_module_checkpoint(other, OptimizerBundle(optimizer, scheduler), tmp_path)
        assert scheduler.last_epoch == 3


class TestTheFolder:
    def test_has_trainable_parameters_alone_and_says_what_it_is(self, tmp_path: Path) -> None:
        module = Adapted()
        optimizer = torch.optim.AdamW([module.down, module.up])
        told = save(module, tmp_path / "new", optimizer, model_name_or_path="base/model", metadata={"rank": 2})
        assert set(load_file(tmp_path / "new/lora.safetensors")) == {"down", "up"}
        assert told == {
            "format": "lora_safetensors_v1",
            "step": 7,
            "final": False,
            "primary_path": "lora.safetensors",
            "model_name_or_path": "base/model",
            "optimizer_path": "optimizer.safetensors",
            "rank": 2,
        }
        stored = json.loads((tmp_path / "new/checkpoint_meta.json").read_bytes())
        assert {key: value for key, value in stored.items() if key != "save"} == told
        assert names(tmp_path / "new") == {"lora.safetensors", "optimizer.safetensors", "checkpoint_meta.json"}

    def test_keeps_nothing_of_an_earlier_save(self, tmp_path: Path) -> None:
        module = Adapted()
        save(module, tmp_path, torch.optim.AdamW([module.down, module.up]))
        for stale in ("lora.pt", "optimizer.pt"):
            torch.save({}, tmp_path / stale)
        assert "optimizer_path" not in save(module, tmp_path)
        assert names(tmp_path) == {"lora.safetensors", "checkpoint_meta.json"}

    def test_refuses_what_it_cannot_store_and_says_where(self, tmp_path: Path) -> None:
        class Odd:
            def state_dict(self) -> dict[str, Any]:
                return {"deep": [{"er": object()}]}

        for key in ("step", "format", "final", "primary_path", "optimizer_path", "save"):
            with pytest.raises(ValueError, match=f"'{key}'"):  # metadata does not say what the arguments say
                save(Adapted(), tmp_path / "new", metadata={key: 1})
        for value in (object(), float("nan")):
            with pytest.raises(TypeError, match="not JSON"):
                save(Adapted(), tmp_path / "new", metadata={"x": value})
        with pytest.raises(ValueError, match="no trainable parameters found while saving checkpoint"):
            save(nn.Linear(2, 2).requires_grad_(False), tmp_path / "new")
        assert not (tmp_path / "new").exists()
        with pytest.raises(TypeError, match=r"at /scheduler/deep/0/er is a builtins\.object"):
            save(Adapted(), tmp_path / "new", scheduler=Odd())


class TestACrash:
    @pytest.mark.parametrize("at", range(6))
    def test_at_any_file_leaves_the_old_or_the_new_or_an_error_but_no_mixture(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
    ) -> None:
        old, new = Adapted(seed=1), Adapted(seed=2)
        save(old, tmp_path, torch.optim.AdamW([old.down, old.up]))
        calls: list[str] = []

        def failing(real: Any) -> Any:
            def call(path: Path, *content: Any) -> Any:
                calls.append(path.name)
                if len(calls) == at + 1:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(path, *content)

            return call

        for name in ("remove", "write_atomically", "write_tensors", "write_state"):
            monkeypatch.setattr(saving, name, failing(getattr(saving, name)))
        with pytest.raises(OSError, match="No space left"):
            save(new, tmp_path, torch.optim.AdamW([new.down, new.up]))

        into = Adapted(seed=3)
        before = into.down.clone()
        try:
            load_trainable_module_checkpoint(into, torch.optim.AdamW([into.down, into.up]), tmp_path)
        except ModuleCheckpointError as error:
            assert "a save was cut off" in error.message
            assert torch.equal(into.down, before)
        else:
            assert torch.equal(into.down, old.down)
            assert calls == ["checkpoint_meta.json"]

    def test_while_a_file_is_written_keeps_the_file_that_was_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x"
        files.write_atomically(path, b"old")
        monkeypatch.setattr(files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
        with pytest.raises(OSError, match="no"):
            files.write_atomically(path, b"new")
        assert (path.read_bytes(), names(tmp_path)) == (b"old", {"x"})


class TestADifference:
    def load(self, module: nn.Module, folder: Path, optimizer: Any = None, **other: Any) -> Any:
        return load_trainable_module_checkpoint(module, optimizer, folder, **other)

    def refused(self, module: nn.Module, folder: Path, says: str, optimizer: Any = None) -> None:
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with pytest.raises(ModuleCheckpointError, match=says):
            self.load(module, folder, optimizer)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())

    def test_of_shape(self, tmp_path: Path) -> None:
        save(Adapted(rank=2), tmp_path)
        self.refused(Adapted(rank=3), tmp_path, r"down \(\(2, 4\) in the file, \(3, 4\) here\)")
        loaded = self.load(Adapted(rank=3), tmp_path, strict=False)
        assert len(loaded.mismatched) == 2
        assert loaded.step == 7

    def test_of_names(self, tmp_path: Path) -> None:
        save(Adapted(), tmp_path)
        module = Adapted()
        module.extra = nn.Parameter(torch.ones(1))
        module.up.requires_grad_(False)
        self.refused(module, tmp_path, "missing in the file: extra; not a trainable parameter here: up")
        loaded = self.load(module, tmp_path, strict=False)
        assert (loaded.missing, loaded.unexpected) == (("extra",), ("up",))

    def test_of_dtype_is_converted_only_when_allowed(self, tmp_path: Path) -> None:
        source = Adapted(seed=1)
        save(source, tmp_path)
        module = Adapted(seed=2).to(torch.bfloat16)
        self.refused(module, tmp_path, r"down \(torch\.float32 in the file, torch\.bfloat16 here\)")
        assert len(self.load(module, tmp_path, strict=False).converted) == 2
        assert torch.equal(module.down, source.down.to(torch.bfloat16))

    def test_of_what_the_optimizer_trains(self, tmp_path: Path) -> None:
        module = Adapted()
        optimizer = torch.optim.AdamW([module.down, module.up])
        train(module, optimizer)
        save(module, tmp_path, optimizer)
        others = {
            "another order": torch.optim.AdamW([module.up, module.down]),
            "other groups": torch.optim.AdamW([{"params": [module.down]}, {"params": [module.up]}]),
            "another class": torch.optim.SGD([module.down, module.up]),
        }
        for other in others.values():
            self.refused(module, tmp_path, "without a state that fits: optimizer", other)
            assert self.load(module, tmp_path, other, strict=False).skipped == ("optimizer",)
            assert not other.state

    def test_of_what_is_given(self, tmp_path: Path) -> None:
        module = Adapted()
        save(module, tmp_path)
        optimizer = torch.optim.AdamW([module.down, module.up])
        scheduler = CosineAnnealingLR(optimizer, 3)
        with pytest.raises(ModuleCheckpointError, match="without a state that fits: optimizer, scheduler"):
            self.load(module, tmp_path, optimizer, scheduler=scheduler)
        loaded = self.load(module, tmp_path, optimizer, scheduler=scheduler, strict=False)
        assert loaded.skipped == ("optimizer", "scheduler")


class TestTiedParameters:
    def test_are_stored_once_and_come_back_tied_or_not(self, tmp_path: Path) -> None:
        source = Tied()
        save(source, tmp_path)
        assert set(load_file(tmp_path / "lora.safetensors")) == {"embedding.weight"}
        for module in (Tied(), Tied(tied=False)):
            assert load_trainable_module_checkpoint(module, None, tmp_path).problems == ()
            assert torch.equal(module.head.weight, source.head.weight)
            assert torch.equal(module.embedding.weight, source.embedding.weight)
        save(Tied(tied=False), tmp_path)  # they differ in the file, and are not silently one of both
        with pytest.raises(ModuleCheckpointError, match=r"tied to head\.weight here, and different in the file"):
            load_trainable_module_checkpoint(Tied(), None, tmp_path)

    def test_views_of_one_memory_and_odd_strides_come_back(self, tmp_path: Path) -> None:
        def make(seed: int) -> nn.Module:
            module = nn.Module()
            memory = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
            module.first, module.second = nn.Parameter(memory[:2]), nn.Parameter(memory[2:])
            module.turned = nn.Parameter(memory.t())
            return module

        source, module = make(1), make(2)
        expected = [parameter.clone() for parameter in source.parameters()]
        save(source, tmp_path)
        stored = load_file(tmp_path / "lora.safetensors")
        assert all(torch.equal(stored[name], source.get_parameter(name)) for name in ("first", "second", "turned"))
        load_trainable_module_checkpoint(module, None, tmp_path)
        assert torch.equal(module.turned, expected[2])


class TestWrappers:
    def test_do_not_show_in_the_names(self, tmp_path: Path) -> None:
        wrapped = nn.DataParallel(Adapted(seed=1))
        compiled = nn.Module()  # stands for what torch.compile returns, which takes seconds to import
        compiled._orig_mod = wrapped
        save(compiled, tmp_path)
        assert set(load_file(tmp_path / "lora.safetensors")) == {"down", "up"}
        module = Adapted(seed=2)
        load_trainable_module_checkpoint(nn.DataParallel(module), None, tmp_path)
        assert torch.equal(module.down, wrapped.module.down)
        foreign = {f"module.{name}": getattr(wrapped.module, name).data for name in ("down", "up")}
        save_file(foreign, tmp_path / "lora.safetensors")  # of another host, which stores the wrapper's names
        (tmp_path / "checkpoint_meta.json").unlink()
        other = Adapted(seed=2)
        load_trainable_module_checkpoint(other, None, tmp_path)
        assert torch.equal(other.down, wrapped.module.down)


class TestOtherHosts:
    def theirs(self, folder: Path, module: Adapted, *, pickled: bool = False, **meta: Any) -> None:
        tensors = {"down": module.down.data, "up": module.up.data}
        if pickled:
            torch.save(tensors, folder / "lora.pt")
        else:
            save_file(tensors, folder / "lora.safetensors")
        (folder / "checkpoint_meta.json").write_text(json.dumps({"step": 5, **meta}))

    def test_write_folders_that_can_be_read(self, tmp_path: Path) -> None:
        source, module = Adapted(seed=1), Adapted(seed=2)
        optimizer = torch.optim.AdamW([source.down, source.up])
        train(source, optimizer)
        self.theirs(tmp_path, source, format="lora_safetensors_v1")
        torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
        again = torch.optim.AdamW([module.down, module.up])
        loaded = load_trainable_module_checkpoint(module, again, tmp_path)
        assert loaded.step == 5
        assert torch.equal(module.up, source.up)
        assert torch.equal(again.state[module.up]["exp_avg"], optimizer.state[source.up]["exp_avg"])

    def test_may_have_left_a_stale_file_which_does_not_win(self, tmp_path: Path) -> None:
        stale, source, module = Adapted(seed=1), Adapted(seed=2), Adapted(seed=3)
        self.theirs(tmp_path, stale)
        self.theirs(tmp_path, source, pickled=True, format="lora_torch_v1")
        load_trainable_module_checkpoint(module, None, tmp_path)
        assert torch.equal(module.up, source.up)
        (tmp_path / "checkpoint_meta.json").unlink()
        with pytest.raises(ModuleCheckpointError, match="nothing says which one is newer"):
            load_trainable_module_checkpoint(module, None, tmp_path)

    def test_may_have_pickled_code_which_is_never_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Bomb:
            def __reduce__(self) -> Any:
                return (Path.touch, (tmp_path / "exploded",))

        torch.save({"down": Bomb()}, tmp_path / "lora.pt")
        with pytest.raises(ModuleCheckpointError, match="holds more than tensors"):
            load_trainable_module_checkpoint(Adapted(), None, tmp_path)
        assert not (tmp_path / "exploded").exists()
        monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1"))
        with pytest.raises(ModuleCheckpointError, match=r"torch 2\.9\.1 cannot read safely"):
            load_trainable_module_checkpoint(Adapted(), None, tmp_path)


class TestDamage:
    @pytest.mark.parametrize("name", ["lora.safetensors", "optimizer.safetensors", "checkpoint_meta.json"])
    def test_of_a_file_that_was_cut_off_is_told_by_its_name(self, tmp_path: Path, name: str) -> None:
        module = Adapted()
        optimizer = torch.optim.AdamW([module.down, module.up])
        train(module, optimizer)
        save(module, tmp_path, optimizer)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ModuleCheckpointError, match=f"^{name} cannot be read") as raised:
            load_trainable_module_checkpoint(module, optimizer, tmp_path)
        assert raised.value.file == str(tmp_path / name)

    def test_of_nothing_there_or_of_two_saves_that_were_mixed_is_seen(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            with pytest.raises(ModuleCheckpointError, match=r"there is no lora\.safetensors"):
                load_trainable_module_checkpoint(Adapted(), None, folder)
        save(Adapted(), tmp_path / "a")
        save(Adapted(), tmp_path / "b")
        (tmp_path / "a/lora.safetensors").replace(tmp_path / "b/lora.safetensors")
        with pytest.raises(ModuleCheckpointError, match="a save was cut off"):
            load_trainable_module_checkpoint(Adapted(), None, tmp_path / "b")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of one rank."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
class TestSeveralRanks:
    def test_write_nothing_but_the_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = save(nn.parallel.DistributedDataParallel(Adapted()), tmp_path / "first")
        assert set(load_file(tmp_path / "first/lora.safetensors")) == {"down", "up"}, "DDP does not show"
        monkeypatch.setattr(dist, "get_rank", lambda: 1)
        assert save(Adapted(), tmp_path / "second") == first
        assert not (tmp_path / "second").exists()

    def test_among_which_a_parameter_is_spread_have_none_that_could_write_it(self, tmp_path: Path) -> None:
        module = Adapted()
        module.down = nn.Parameter(distribute_tensor(module.down.data, init_device_mesh("cpu", (1,))))
        with pytest.raises(ModuleCheckpointError, match="FSDP has spread the parameter down") as raised:
            save(module, tmp_path / "new")
        assert raised.value.hint is not None and "training_state" in raised.value.hint
        assert not (tmp_path / "new").exists()
