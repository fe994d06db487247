"""Every class of torch.optim through DistributedOptimizer: parameters as of a local one, or a clear refusal."""

import pytest
import torch
from torch import optim

from gradwire import autograd, rpc
from gradwire.optim import DistributedOptimizer

# With parameters whose gradients are dense, and with those of an embedding, which are sparse.
DENSE = [
    (optim.ASGD, {"t0": 1}),
    (optim.Adadelta, {"lr": 0.5}),
    (optim.Adafactor, {}),
    (optim.Adagrad, {"lr_decay": 0.1}),
    (optim.Adam, {"lr": 0.1, "weight_decay": 0.1}),
    (optim.Adam, {"lr": 0.1, "fused": True}),
    (optim.AdamW, {"lr": 0.1, "amsgrad": True, "maximize": True}),
    (optim.Adamax, {}),
    (optim.Muon, {}),
    (optim.NAdam, {"momentum_decay": 0.1}),
    (optim.RAdam, {"lr": 0.1}),
    (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (optim.Rprop, {}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (optim.SGD, {"lr": 0.1, "fused": True}),
]
SPARSE = [(optim.Adagrad, {}), (optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.SparseAdam, {"lr": 0.1})]
REFUSED = {optim.LBFGS: "needs a closure"}
STEPS = 3


def with_and_without_foreach(cases):
    for cls, options in cases:
        yield cls, options
        if "foreach" in cls.__init__.__annotations__ and "fused" not in options:
            yield cls, {**options, "foreach": True}


def new_parameters():
    """Forked workers begin with equal copies; each uses its own of them. Two are added up on the other worker."""
    generator = torch.Generator().manual_seed(7)
    return [[torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(3)] for _ in range(2)]


def model(values, call):
    first, second, table = values[0]
    rows = torch.nn.functional.embedding(torch.tensor([0, 2, 2]), table, sparse=True)
    return call(outer, first, second, rows, values[1]).square().sum()


def outer(first, second, rows, own):
    here = torch.nn.functional.embedding(torch.tensor([1, 3, 1]), own[2], sparse=True)
    return torch.tanh(rows @ (first + second) @ own[0]) * (own[1] * 0.5)[:3] + here


def outer_there(first, second, rows, _):
    return outer(first, second, rows, _trained[1])


def remotely(_, *args):
    return rpc.rpc_sync("worker1", outer_there, args=(*args[:3], None))


def locally(function, *args):
    return function(*args)


_trained = []


def begin():
    _trained[:] = new_parameters()


def parameter(rank, number):
    return _trained[rank][number]


def differences(cls, options, numbers):
    """The largest one after some steps, and how far the parameters have come."""
    begin()
    rpc.rpc_sync("worker1", begin)
    references = [
        rpc.remote(f"worker{rank}", parameter, args=(rank, number)) for rank in range(2) for number in numbers
    ]
    distributed = DistributedOptimizer(cls, references, **options)
    values = new_parameters()
    mine = [values[rank][number] for rank in range(2) for number in numbers]
    local = cls(mine, **options)
    for _ in range(STEPS):
        local.zero_grad()
        model(values, locally).backward()
        local.step()
        with autograd.context() as context_id:
            autograd.backward(context_id, [model(_trained, remotely)])
            distributed.step(context_id)
    there = [reference.to_here() for reference in references]
    start = [own[number] for own in new_parameters() for number in numbers]
    return (
        max((a - b).abs().max().item() for a, b in zip(there, mine, strict=True)),
        min((a - b).abs().max().item() for a, b in zip(there, start, strict=True)),
    )


# A1
def test_every_class_of_torch_optim(group):
    classes = {cls for cls in vars(optim).values() if isinstance(cls, type) and cls is not optim.Optimizer}
    assert classes == {cls for cls, _ in DENSE + SPARSE} | set(REFUSED)

    def body():
        for cases, numbers in ((DENSE, (0, 1)), (SPARSE, (2,))):
            for cls, options in with_and_without_foreach(cases):
                difference, way = differences(cls, options, numbers)
                assert difference <= 1e-6, (cls, options)
                assert way > 1e-5, (cls, options)
        for cls, text in REFUSED.items():
            with pytest.raises(TypeError, match=text):
                DistributedOptimizer(cls, [rpc.RRef(torch.ones(2, requires_grad=True))])

    group(body)


# As a local one refuses them.
@pytest.mark.parametrize("cls", [optim.Adam, optim.Rprop])
def test_sparse_gradients_where_a_class_takes_none(group, cls):
    def body():
        with pytest.raises(RuntimeError, match="sparse gradients"):
            differences(cls, {}, (2,))

    group(body)
