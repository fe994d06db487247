"""DistributedDataParallel inside of contexts: gradients are averaged, and go to the context alone."""

import contextlib
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire import Error, autograd, rpc

_BEFORE = 7.0  # in `.grad`, which passes leave alone

warnings.filterwarnings("ignore", module="torch")


class Net(torch.nn.Module):
    """`never` is not used; `second` only where it is asked for. With `to`, half of it is on another worker."""

    def __init__(self, to=None):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.never = (torch.nn.Linear(3, 3) for _ in range(3))
        self.to_worker = to

    def forward(self, x, uses_second=True):
        y = torch.tanh(self.first(x))
        if self.to_worker is not None:
            y = rpc.rpc_sync(self.to_worker, torch.tanh, args=(y,))
        return self.second(y) if uses_second else y


class Used(Net):
    def __init__(self, to=None):
        super().__init__(to)
        del self.never


def inputs(rank, number):
    return torch.rand(4, 3, generator=torch.Generator().manual_seed(10 * number + rank))


def averages(net, outputs):
    """What all ranks should have: the mean of their own gradients. None where no rank has any."""
    own = torch.autograd.grad(outputs.sum(), list(net.parameters()), allow_unused=True)
    result = []
    for parameter, gradient in zip(net.parameters(), own, strict=True):
        is_there = torch.tensor(float(gradient is not None))
        dist.all_reduce(is_there)
        gradient = torch.zeros_like(parameter) if gradient is None else gradient.clone()
        dist.all_reduce(gradient)
        result.append(gradient / dist.get_world_size() if is_there else None)
    return result


def is_right(net, context_id, wanted):
    gradients = autograd.get_gradients(context_id)
    for parameter, right in zip(net.parameters(), wanted, strict=True):
        got = gradients.get(parameter)
        assert (got is None) == (right is None)
        assert right is None or torch.allclose(got, right, atol=1e-6)
        assert torch.equal(parameter.grad, torch.full_like(parameter, _BEFORE))


def fill(net):
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, _BEFORE)


def three_passes(rank, kind, options, second_on):
    net = kind()
    ddp = DistributedDataParallel(net, **options)
    kept = []
    for number in range(3):
        fill(net)
        x = inputs(rank, number)
        wanted = averages(net, net(x, rank in second_on))
        with autograd.context() as context_id:
            autograd.backward(context_id, [ddp(x, rank in second_on).sum()])
            is_right(net, context_id, wanted)
            kept.append((autograd.get_gradients(context_id)[net.first.weight], wanted[0]))
    assert all(torch.allclose(gradient, wanted, atol=1e-6) for gradient, wanted in kept)  # no reducer's memory


def without_synchronization(rank, kind, options, second_on):
    net = kind()
    ddp = DistributedDataParallel(net, **options)
    fill(net)
    with autograd.context() as context_id:
        for number in range(3):
            with ddp.no_sync() if number < 2 else contextlib.nullcontext():
                autograd.backward(context_id, [ddp(inputs(rank, number)).sum()])
        is_right(net, context_id, averages(net, sum(net(inputs(rank, number)) for number in range(3))))


def among_local_passes(rank, kind, options, second_on):
    net = kind()
    ddp = DistributedDataParallel(net, **options)
    for number in range(2):
        x = inputs(rank, number)
        wanted = averages(net, net(x))
        ddp.zero_grad()
        ddp(x).sum().backward()
        assert all(
            torch.allclose(parameter.grad, right) for parameter, right in zip(net.parameters(), wanted, strict=True)
        )
        fill(net)
        with autograd.context() as context_id:
            autograd.backward(context_id, [ddp(x).sum()])
            is_right(net, context_id, wanted)


def calls_inside(rank, kind, options, second_on):
    net = kind(f"worker{1 - rank}")
    ddp = DistributedDataParallel(net, **options)
    for number in range(3):
        fill(net)
        x = inputs(rank, number)
        net.to_worker = None
        wanted = averages(net, net.second(torch.tanh(torch.tanh(net.first(x)))))
        net.to_worker = f"worker{1 - rank}"
        with autograd.context() as context_id:
            autograd.backward(context_id, [ddp(x).sum()])
            is_right(net, context_id, wanted)


def calls_inside_are_refused(rank, kind, options, second_on):
    net = kind(f"worker{1 - rank}")
    ddp = DistributedDataParallel(net, **options)
    fill(net)
    with autograd.context() as context_id:
        with pytest.raises(Error, match="find_unused_parameters"):
            autograd.backward(context_id, [ddp(inputs(rank, 0)).sum()])
        is_right(net, context_id, [None] * len(list(net.parameters())))


def fails(rank, kind, options, second_on):
    net = kind()
    ddp = DistributedDataParallel(net, **options)
    fill(net)
    net.first.weight.register_hook(lambda gradient: 1 / 0)
    with autograd.context() as context_id:
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [ddp(inputs(rank, 0)).sum()])
        is_right(net, context_id, [None] * len(list(net.parameters())))


def sparse(rank, kind, options, second_on):
    net = torch.nn.Embedding(5, 2, sparse=True, _weight=torch.ones(5, 2))
    ddp = DistributedDataParallel(net, **options)
    fill(net)
    with autograd.context() as context_id:
        autograd.backward(context_id, [ddp(torch.tensor([rank, 2, 2])).sum()])
        gradient = autograd.get_gradients(context_id)[net.weight]
        assert gradient.is_sparse
        assert gradient.to_dense()[:, 0].tolist() == [0.5, 0.5, 2, 0, 0]
        assert torch.equal(net.weight.grad, torch.full((5, 2), _BEFORE))


def on_rank(rank, store, program, kind, options, second_on):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        program(rank, kind, options, second_on)
    finally:
        dist.destroy_process_group()


BOTH, ONE = (0, 1), (0,)
UNUSED = {"find_unused_parameters": True}
STATIC = {"static_graph": True}
VIEWS = {"gradient_as_bucket_view": True}


# A1, A3, A4
@pytest.mark.parametrize(
    ("program", "kind", "options", "second_on"),
    [
        (three_passes, Used, {}, BOTH),
        (three_passes, Used, VIEWS, BOTH),
        (three_passes, Used, STATIC, BOTH),
        (three_passes, Net, UNUSED, ONE),
        (three_passes, Net, UNUSED | VIEWS, ONE),
        (three_passes, Net, STATIC | VIEWS, BOTH),
        (without_synchronization, Used, {}, BOTH),
        (without_synchronization, Used, VIEWS, BOTH),
        (among_local_passes, Used, {}, BOTH),
        (among_local_passes, Used, VIEWS, BOTH),
        (calls_inside, Used, {}, BOTH),
        (calls_inside, Used, VIEWS, BOTH),
        (calls_inside_are_refused, Used, UNUSED, BOTH),
        (calls_inside_are_refused, Used, STATIC, BOTH),
        (fails, Used, {}, BOTH),
        (sparse, torch.nn.Embedding, {}, BOTH),
    ],
    ids=lambda value: value.__name__ if isinstance(value, Callable) else "-".join(map(str, value or ["none"])),
)
def test_ddp_in_a_context(group, tmp_path, program, kind, options, second_on):
    store = str(tmp_path / "reducers")

    def body():
        other = rpc.rpc_async("worker1", on_rank, args=(1, store, program, kind, options, second_on))
        on_rank(0, store, program, kind, options, second_on)
        other.wait()

    group(body)
