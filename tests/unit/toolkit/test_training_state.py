"""``training_state`` on one rank; what several ranks make of it: e2e/ranks_worker."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hostcore.checkpoints.snapshot import write_state
from hostcore.checkpoints.state import read_state
from hostcore_hookspecs import Job, StepContext
from hostcore_toolkit import average_gradients, load_training_state, parallelize, training_state
from hostcore_toolkit.parallel import CannotParallelize, _blocks
from hostcore_toolkit.training_state import InvalidTrainingState


def trained(
    *, seed: int, steps: int = 3, optimizer: type = torch.optim.AdamW
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    made = optimizer(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(5, 3)).sum().backward()
        made.step()
        made.zero_grad()
    return model, made


def same(one: object, other: object) -> bool:
    return str(one) == str(other)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_what_a_checkpoint_keeps_of_it_brings_another_model_to_the_same_state(tmp_path, optimizer) -> None:
    model, made = trained(seed=1, optimizer=optimizer)
    write_state(tmp_path, "state", training_state(model, made))
    for steps in (1, 0):  # an optimizer that made no step can be loaded into
        other, its = trained(seed=2, steps=steps, optimizer=optimizer)
        load_training_state(other, its, read_state(tmp_path, "state"))
        pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert same(made.state_dict(), its.state_dict())


def test_parameters_are_named_and_not_numbered() -> None:
    state = training_state(*trained(seed=1))
    assert {"0.weight", "1.running_mean", "2.bias"} < set(state["model"])
    assert set(state["optimizer"]["state"]) == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}
    assert set(training_state(trained(seed=1)[0])) == {"model"}


def test_a_parameter_that_never_had_a_gradient_has_no_state() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    made = torch.optim.AdamW(model.parameters())
    model[0](torch.randn(3, 2)).sum().backward()
    made.step()
    state = training_state(model, made)
    assert set(state["optimizer"]["state"]) == {"0.weight", "0.bias"}
    load_training_state(model, made, state)
    assert set(training_state(model, made)["optimizer"]["state"]) == {"0.weight", "0.bias"}


def test_a_foreign_optimizer_a_foreign_state_and_lbfgs_are_refused() -> None:
    model, made = trained(seed=1)
    foreign = torch.optim.SGD(nn.Linear(1, 1).parameters())
    with pytest.raises(InvalidTrainingState, match="2 parameters of the optimizer are not of the model"):
        training_state(model, foreign)
    with pytest.raises(InvalidTrainingState, match="LBFGS"):
        training_state(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(InvalidTrainingState, match="has no optimizer"):
        load_training_state(model, made, training_state(model))
    part = torch.optim.AdamW(model[0].parameters())
    with pytest.raises(InvalidTrainingState, match=r"of other parameters: 1\.bias"):
        load_training_state(model, part, training_state(model, made))
    with pytest.raises(InvalidTrainingState, match="torch cannot load the state"):
        load_training_state(nn.Linear(3, 4), None, training_state(model))


def test_one_rank_gets_its_model_back_as_it_is() -> None:
    model = nn.Linear(1, 1)
    assert parallelize(model, StepContext(job=Job(max_steps=1))) is model
    with pytest.raises(CannotParallelize, match="no strategy 'zero3'"):
        parallelize(model, StepContext(), strategy="zero3")  # type: ignore[arg-type]
    with pytest.raises(CannotParallelize, match="not connected"):
        parallelize(model, StepContext(world_size=2))


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_models_that_cannot_be_parallel_are_refused() -> None:
    ctx = StepContext(world_size=2)
    with pytest.raises(CannotParallelize, match="lazy"):
        parallelize(nn.LazyLinear(1), ctx)
    with pytest.raises(CannotParallelize, match="requires a gradient"):
        parallelize(nn.Linear(1, 1).requires_grad_(False), ctx)
    with pytest.raises(CannotParallelize, match="parallel already"):
        parallelize(parallelize(nn.Linear(1, 1), ctx), ctx)
    with pytest.raises(CannotParallelize, match="no block 'layers'"):
        parallelize(nn.Linear(1, 1), ctx, strategy="fsdp2", blocks=["layers"])
    with pytest.raises(CannotParallelize, match="no collectives on mps"):
        parallelize(nn.Linear(1, 1), StepContext(world_size=2, device="mps"))


@pytest.mark.usefixtures("group")
def test_a_spread_model_computes_in_the_precision_of_the_job() -> None:
    ctx = StepContext(world_size=2, dtype=torch.bfloat16)
    model = parallelize(nn.Sequential(nn.Linear(2, 2)), ctx, strategy="fsdp2", blocks=[nn.Linear])
    assert model(torch.ones(1, 2)).dtype == torch.bfloat16
    assert {one.dtype for one in model.parameters()} == {torch.float32}


def test_blocks_are_found_in_lists_of_alike_members_or_named() -> None:
    model = nn.ModuleDict(
        {
            "layers": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]),
            "mixed": nn.ModuleList([nn.Linear(1, 1), nn.ReLU()]),
        }
    )
    layers = list(model["layers"])
    assert set(_blocks(model, None)) == set(layers)
    assert set(_blocks(model, ["layers"])) == set(layers)
    assert _blocks(model, ["layers.1"]) == [layers[1]]
    assert set(_blocks(model, [nn.Linear])) == {*layers, model["mixed"][0]}


@pytest.mark.usefixtures("group")
def test_a_replicated_model_is_itself_and_takes_no_options() -> None:
    ctx, model = StepContext(world_size=2), nn.Linear(1, 1)
    assert parallelize(model, ctx, strategy="replicate") is model
    with pytest.raises(CannotParallelize, match="takes no options, such as bucket_cap_mb"):
        parallelize(model, ctx, strategy="replicate", bucket_cap_mb=1)


@pytest.mark.usefixtures("group")
def test_gradients_are_averaged_behind_the_backward_unless_ddp_has_done_so() -> None:
    """The group has one process, so the mean over the two ranks of the context is half of its gradients."""
    ctx = StepContext(world_size=2)
    model = parallelize(nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]), ctx, strategy="replicate")
    model[0](torch.ones(1, 1)).sum().backward()
    average_gradients(model, ctx)
    assert [float(one.grad) for one in model.parameters()] == [0.5, 0.5, 0.0, 0.0]
    parallel = parallelize(nn.Linear(1, 1), ctx)
    parallel(torch.ones(1, 1)).sum().backward()
    before = [float(one.grad) for one in parallel.parameters()]
    average_gradients(parallel, ctx)
    assert [float(one.grad) for one in parallel.parameters()] == before
