"""DistributedOptimizer over parameters of three real processes, against torch.optim in one."""

import threading

import pytest
import torch

from gradwire import Error, autograd, rpc
from gradwire.optim import DistributedOptimizer

LIMITS = {torch.float32: 1e-6, torch.float64: 1e-12}
STEPS = 10
CASES = {
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "sgd_nesterov_decay": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.02}),
    "adam_amsgrad_decay": (torch.optim.Adam, {"lr": 0.02, "amsgrad": True, "weight_decay": 0.01}),
}


def new_layers(dtype):
    """For each worker (weight, bias, a parameter that takes no part): forked workers begin with equal copies."""
    generator = torch.Generator().manual_seed(5)
    sizes = ((4, 4), (4,), (2,))
    return [[torch.randn(size, dtype=dtype, generator=generator).requires_grad_() for size in sizes] for _ in range(3)]


def batch(step, dtype):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 4, dtype=dtype, generator=generator)


LAYERS = {dtype: new_layers(dtype) for dtype in LIMITS}  # a worker uses its own of them


def apply(layer, h):
    return torch.tanh(h @ layer[0] + layer[1])


def forward(rank, h):
    """The layers of this worker and of those after it."""
    h = apply(LAYERS[h.dtype][rank], h)
    return h if rank == 2 else rpc.rpc_sync(f"worker{rank + 1}", forward, args=(rank + 1, h))


def forward_in_one(layers, h):
    for layer in layers:
        h = apply(layer, h)
    return h


def parameter(rank, index, dtype):
    return LAYERS[dtype][rank][index]


def references(dtype):
    return [
        rpc.remote(f"worker{rank}", parameter, args=(rank, index, dtype)) for rank in range(3) for index in range(3)
    ]


def gradient_is_unset(rank, dtype):
    return all(p.grad is None for p in LAYERS[dtype][rank])


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_ten_steps_equal_one_process(group, case, dtype):
    optimizer_class, options = CASES[case]

    def body():
        layers = new_layers(dtype)
        local = optimizer_class([p for layer in layers for p in layer], **options)
        distributed = DistributedOptimizer(optimizer_class, references(dtype), **options)
        for step in range(STEPS):
            x = batch(step, dtype)
            local.zero_grad()
            forward_in_one(layers, x).square().mean().backward()
            local.step()
            with autograd.context() as context_id:
                autograd.backward(context_id, [forward(0, x).square().mean()])
                distributed.step(context_id)
        begin = new_layers(dtype)
        for rank in range(3):
            for index in range(3):
                there = rpc.rpc_sync(f"worker{rank}", parameter, args=(rank, index, dtype))
                assert (there - layers[rank][index]).abs().max() <= LIMITS[dtype], (rank, index)
                moved = (there - begin[rank][index]).abs().max()
                assert moved > 0.01 if index < 2 else moved == 0
            assert rpc.rpc_sync(f"worker{rank}", gradient_is_unset, args=(rank, dtype))

    group(body, world_size=3)


# Steps of several trainers on the same parameters come one after another: as many as were made are in the sum.
def test_several_trainers(group):
    def body():
        futures = [rpc.rpc_async(f"worker{rank}", train_scale) for rank in (1, 2)]
        threads = [threading.Thread(target=train_scale) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for future in futures:
            future.wait()
        assert SCALE.item() == -40
        assert SCALE.grad is None

    group(body, world_size=3)


SCALE = torch.zeros((), dtype=torch.float64, requires_grad=True)


def get_scale():
    return SCALE


def times_scale(x):
    return x * SCALE


def train_scale():
    """Ten steps by -1 each: SCALE lives on worker0."""
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote("worker0", get_scale)], lr=1.0)
    for _ in range(10):
        with autograd.context() as context_id:
            autograd.backward(context_id, [rpc.rpc_sync("worker0", times_scale, args=(torch.ones(()),)).sum()])
            optimizer.step(context_id)


class StepError(ValueError):
    pass


class FailingStep(torch.optim.SGD):
    def step(self, closure=None):
        if rpc.get_worker_info().name == "worker2":
            raise StepError("no step here")
        return super().step(closure)


def test_errors_of_the_owners(group):
    def body():
        dtype = torch.float64
        rrefs = references(dtype)
        with pytest.raises(ValueError, match="there are no parameters"):
            DistributedOptimizer(torch.optim.SGD, [], lr=0.1)
        with pytest.raises(ValueError, match=r"Invalid learning rate: -1") as caught:
            DistributedOptimizer(torch.optim.SGD, rrefs[3:6], lr=-1)
        assert "worker1" in caught.value.__notes__[-1]
        with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
            DistributedOptimizer(torch.optim.SGD, rrefs, lr=0.1, speed=1)
        with pytest.raises(TypeError, match="can only optimize Tensors"):
            DistributedOptimizer(torch.optim.SGD, [rpc.remote("worker1", max, args=(1, 2))], lr=0.1)

        class Local(torch.optim.SGD):
            pass

        with pytest.raises((Error, AttributeError), match=r"Local"):
            DistributedOptimizer(Local, rrefs, lr=0.1)

        failing = DistributedOptimizer(FailingStep, rrefs, lr=0.1)
        good = DistributedOptimizer(torch.optim.SGD, rrefs, lr=0.1)
        with autograd.context() as context_id:
            autograd.backward(context_id, [forward(0, batch(0, dtype)).sum()])
            with pytest.raises(StepError, match="no step here") as caught:
                failing.step(context_id)
            assert "worker2" in caught.value.__notes__[-1]
            assert rpc.rpc_sync("worker2", gradient_is_unset, args=(2, dtype))
            before = rpc.rpc_sync("worker2", parameter, args=(2, 0, dtype))
            good.step(context_id)
            assert not torch.equal(rpc.rpc_sync("worker2", parameter, args=(2, 0, dtype)), before)
        for unknown in (context_id, 77):
            with pytest.raises(Error, match=f"Could not find autograd context with id: {unknown} ") as caught:
                good.step(unknown)
            assert "worker" in str(caught.value)

    group(body, world_size=3)


# A graph that came to one worker only: the others have nothing of the context, and their parameters stay.
def test_a_worker_that_the_context_did_not_reach(group):
    def body():
        dtype = torch.float64
        optimizer = DistributedOptimizer(torch.optim.SGD, references(dtype), lr=0.1)
        before = [rpc.rpc_sync(f"worker{rank}", parameter, args=(rank, 0, dtype)) for rank in range(3)]
        with autograd.context() as context_id:
            autograd.backward(context_id, [rpc.rpc_sync("worker2", forward, args=(2, batch(0, dtype))).sum()])
            optimizer.step(context_id)
        after = [rpc.rpc_sync(f"worker{rank}", parameter, args=(rank, 0, dtype)) for rank in range(3)]
        assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, True, False]

    group(body, world_size=3)


class Uneven(torch.optim.SGD):
    """Fails at once on worker1; on others waits to be told to end."""

    def step(self):
        if rpc.get_worker_info().name == "worker1":
            raise ArithmeticError("no step")
        _started.set()
        assert _release.wait(50)
        _ended.set()


_started, _release, _ended = threading.Event(), threading.Event(), threading.Event()


def owned_parameter():
    return torch.ones(1, requires_grad=True)


def test_a_step_that_fails_on_one_owner_waits_for_the_others(group):
    def body():
        optimizer = DistributedOptimizer(Uneven, [rpc.remote(f"worker{i}", owned_parameter) for i in range(2)], lr=0.1)
        raised = []

        def step():
            with autograd.context() as context_id, pytest.raises(ArithmeticError, match="no step"):
                optimizer.step(context_id)
            raised.append(_ended.is_set())

        thread = threading.Thread(target=step)
        thread.start()
        assert _started.wait(20)
        thread.join(0.3)
        assert raised == []
        _release.set()
        thread.join(20)
        assert raised == [True]

    group(body)


# Owners that take a call of a step and one that is not there: what is refused at once is no reason to leave the rest.
def test_a_step_that_cannot_be_sent_waits_for_the_others(group):
    def body():
        optimizer = DistributedOptimizer(Uneven, [rpc.remote("worker0", owned_parameter)], lr=0.1)
        lost = object.__new__(DistributedOptimizer)
        lost.remote_optimizers = [optimizer.remote_optimizers[0], _NotThere()]
        raised = []

        def step():
            with autograd.context() as context_id, pytest.raises(Error, match="nobody"):
                lost.step(context_id)
            raised.append(_ended.is_set())

        thread = threading.Thread(target=step)
        thread.start()
        assert _started.wait(20)
        thread.join(0.3)
        assert raised == []
        _release.set()
        thread.join(20)
        assert raised == [True]

    group(body)


class _NotThere:
    def owner(self):
        return "nobody"


_inside = set()
_meeting = threading.Barrier(2)


class Watched(torch.optim.SGD):
    """Notes which parameters are being stepped; with `meets`, waits for another that steps at the same time."""

    def __init__(self, params, meets):
        super().__init__(params, lr=0.1)
        self.meets = meets

    def step(self):
        mine = {id(parameter) for parameter in self.param_groups[0]["params"]}
        assert not mine & _inside
        _inside.update(mine)
        if self.meets:
            _meeting.wait(20)
        super().step()
        _inside.difference_update(mine)


@pytest.mark.parametrize("shared", [True, False])
def test_steps_of_one_process_exclude_each_other_where_they_share_a_parameter(alone, shared):
    first, second, third = (rpc.RRef(torch.ones(1, requires_grad=True)) for _ in range(3))
    sets = ([first, second], [third, second] if shared else [third])
    optimizers = [DistributedOptimizer(Watched, parameters, meets=not shared) for parameters in sets]

    def steps(optimizer):
        with autograd.context() as context_id:
            for _ in range(50):
                optimizer.step(context_id)
        ended.append(optimizer)

    ended = []
    threads = [threading.Thread(target=steps, args=(optimizer,)) for optimizer in optimizers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 2


def halve(optimizer):
    torch.optim.lr_scheduler.StepLR(optimizer.local_value().optim, 1, gamma=0.5).step()
    return optimizer.local_value().optim.param_groups[0]["lr"]


def test_a_scheduler_beside_each_optimizer(alone):
    made = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(torch.ones(1, requires_grad=True))], lr=1.0)
    assert [rpc.rpc_sync(each.owner(), halve, args=(each,)) for each in made.remote_optimizers] == [0.5]


def test_parameters_that_are_no_references(alone):
    parameter = torch.nn.Parameter(torch.ones(2))
    for given, kind in (([parameter], "Parameter"), ([{"params": [rpc.RRef(parameter)], "lr": 0.2}], "dict")):
        with pytest.raises(TypeError, match=rf"takes RRefs to parameters.* not a {kind}"):
            DistributedOptimizer(torch.optim.SGD, given, lr=0.1)
