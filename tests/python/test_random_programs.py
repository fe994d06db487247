"""Random programs over three workers against the same programs in one process: each gradient, or none, and its type.

GRADWIRE_RANDOM_PROGRAMS says how many programs each test runs, GRADWIRE_FIRST_PROGRAM with which it begins.
"""

import asyncio
import contextvars
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import run_group
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

from gradwire import autograd, functions, futures, rpc

PROGRAMS = int(os.environ.get("GRADWIRE_RANDOM_PROGRAMS", "10"))
FIRST = int(os.environ.get("GRADWIRE_FIRST_PROGRAM", "0"))
WORKERS = 3
TYPES = (torch.float64, torch.float64, torch.complex128, torch.float32)
# What gradwire says where it refuses what one process would do.
REFUSALS = ("modified inplace", "a leaf Variable that requires grad")

_is_local = contextvars.ContextVar("is_local", default=False)
_generator = torch.Generator().manual_seed(3)
PARAMETERS = [
    [(torch.rand(4, dtype=dtype, generator=_generator) + 0.3).requires_grad_() for dtype in TYPES]
    for _ in range(WORKERS)
]


def copied(tree):
    """What arrives of a message: a tensor that is in it twice is one."""
    copies = {}

    def copy(tensor):
        return copies.setdefault(id(tensor), (tensor, tensor.clone()))[1]

    return _pytree.tree_map_only(torch.Tensor, copy, tree)


class LocalFuture:
    def __init__(self, value):
        self.kept = value

    def wait(self):
        return self.kept

    value = wait

    def then(self, callback):
        return LocalFuture(callback(self))


class LocalReference:
    def __init__(self, value):
        self.value = value

    def to_here(self):
        return copied(self.value)


def called(function, args):
    return copied(function(*copied(args)))


def start(to, function, args):
    if _is_local.get():
        return LocalFuture(called(PLAIN.get(function, function), args))
    return rpc.rpc_async(f"worker{to}", function, args=args)


def call(to, function, args):
    if _is_local.get():
        return called(PLAIN.get(function, function), args)
    return rpc.rpc_sync(f"worker{to}", function, args=args)


def remote(to, function, args):
    if _is_local.get():
        return LocalReference(function(*copied(args)))
    return rpc.remote(f"worker{to}", function, args=args)


class Pair(torch.autograd.Function):
    """Two results, one of them without a gradient, of two arguments, one of which gets none."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        order = y.abs().argsort()
        ctx.mark_non_differentiable(order)
        return x * 1.5, order

    @staticmethod
    def backward(ctx, gradient, _):
        return None if gradient is None else gradient * 1.5, None


def distinct(values):
    """Copies of those that share memory with one before: views of one message may not be changed apart."""
    seen, result = set(), []
    for value in values:
        at = value.untyped_storage().data_ptr()
        result.append(value.clone() if at in seen else value)
        seen.add(at)
    return result


def packed(values, how):
    """Results as a function may return them."""
    if how == 0:
        return {"first": values[0], "rest": (values[1:], None, 3)}
    return tuple(values) if how == 1 else values


def tensors(tree):
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor) and not is_integer(leaf)]


def is_integer(tensor):
    return not (tensor.is_floating_point() or tensor.is_complex())


class Part:
    """What one function does: steps of arithmetic, and calls of others like it."""

    def __init__(self, seed, depth, here, values, may_change):
        self.random = random.Random(seed)
        self.depth, self.here, self.values, self.may_change = depth, here, values, may_change
        self.pending = []

    def draw(self, below):
        return self.random.randrange(below)

    def any(self):
        return self.values[-1 - self.draw(min(4, len(self.values)))]  # so that few are left unused

    def run(self):
        for _ in range(3 + self.draw(4)):
            steps = LOCAL_STEPS if self.depth == 0 else STEPS
            steps[self.draw(len(steps))](self)
        for future in self.pending:
            self.take(future.wait())
        self.pending = []
        results = [self.values[-1] + self.any() * 0.5, *(self.any() for _ in range(self.draw(3)))]
        return packed(distinct(results), self.draw(3))

    def take(self, results):
        for result in tensors(results):
            if self.draw(4):
                self.values.append(result)

    def arguments(self, may_change=True):
        """Of run_part() elsewhere: values, one of which may be there twice, and what requires no gradient."""
        values = distinct([self.any() for _ in range(1 + self.draw(3))])
        if self.draw(3) == 0:
            values.append(torch.ones(4, dtype=torch.float64))
        twice = self.draw(4) == 0
        if twice:
            values.append(values[0])
        return self.draw(1_000_000), self.depth - 1, self.there(), values, twice, self.may_change and may_change

    def there(self):
        return self.draw(WORKERS)

    # Without calls:
    def weigh(self):
        first, second = (PARAMETERS[self.here][self.draw(len(TYPES))] for _ in range(2))
        self.values.append(torch.tanh(self.any() * 0.5 + second) * first)

    def add(self):
        self.values.append(self.any() + self.any() * 0.5)

    def view(self):
        value = self.any()
        views = (
            lambda: value.view(2, 2).t().reshape(4),
            lambda: value[:],
            lambda: value.flip(0).view(4),
            lambda: torch.cat([value[2:], value[:2] * 2]),
            lambda: torch.stack(value.unbind()[::-1]),
            lambda: value.expand(3, 4)[1],
            lambda: value.conj(),
            lambda: torch.view_as_real(value.resolve_conj())[:, 1] if value.is_complex() else value.double(),
        )
        self.values.append(views[self.draw(len(views))]())

    def change(self):
        kind, value, other = self.draw(3), self.any(), self.any()
        at = value.untyped_storage().data_ptr()
        is_shared = sum(each.untyped_storage().data_ptr() == at for each in self.values) > 1
        is_leaf = value.requires_grad and value.is_leaf
        if not self.may_change or self.pending or is_shared or is_leaf or other is value:
            return
        if other.dtype != value.dtype or any(stride == 0 for stride in value.stride()):
            return
        if kind == 0:
            value.mul_(0.9)
        elif kind == 1:
            value[1:3].add_(other[:2])
        else:
            value.view(2, 2)[0] = other[2:]

    def detach(self):
        self.values.append(self.any() * 0.5 + self.any().detach())

    def hook(self):
        value = self.any() * 1.0
        if value.requires_grad:
            value.register_hook(lambda gradient: None if gradient is None else gradient * 0.7)
        self.values.append(value)

    def custom(self):
        result, order = Pair.apply(self.any(), self.any())
        self.values.append(result[order] if self.draw(2) else result)

    # With calls:
    def call(self):
        args = self.arguments()
        self.take(call(args[2], run_part, args))

    def start(self):
        args = self.arguments()
        function = (run_part, run_later, run_as_coroutine)[self.draw(3)]
        self.pending.append(start(args[2], function, args))

    def chain(self):
        first, second = self.arguments(), self.arguments()
        values = second[3]

        def go_on(done):
            given = distinct(values + tensors(done.value())[:1])
            return call(second[2], run_part, (*second[:3], given, False, second[5]))

        self.pending.append(start(first[2], run_part, first).then(go_on))

    def gather(self):
        started = [start(args[2], run_part, args) for args in (self.arguments(), self.arguments())]
        if _is_local.get():
            self.take([future.wait() for future in started])
        else:
            self.take([future.value() for future in futures.collect_all(started).wait()])

    def refer(self):
        args = self.arguments()
        there = (self.here + 1 + self.draw(WORKERS - 1)) % WORKERS
        reference = remote(there, run_part, (*args[:2], there, *args[3:]))
        for _ in range(self.draw(3)):
            self.take(call(self.there(), fetch, (reference,)))
        self.take([value * 1.0 for value in tensors(reference.to_here())])

    def without_gradients(self):
        args = self.arguments(may_change=False)
        with torch.no_grad():
            results = call(args[2], run_part, args)
        self.values += [self.any() * 0.5 + value.detach() for value in tensors(results)]

    def by_threads(self):
        with ThreadPoolExecutor(2) as pool:
            both = self.arguments(), self.arguments()
            started = [pool.submit(contextvars.copy_context().run, call, args[2], run_part, args) for args in both]
            self.take([each.result() for each in started])

    def recompute(self):
        args = self.arguments(may_change=False)
        args = (*args[:3], [value * 1.0 for value in args[3]], *args[4:])  # nobody changes what is computed again
        self.values.append(checkpoint(one_result, self.any() * 1.0, args, use_reentrant=False))


def one_result(value, args):
    return value * 0.5 + tensors(call(args[2], run_part, args))[0]


def fetch(reference):
    return [value * 1.0 for value in tensors(reference.to_here())]


LOCAL_STEPS = [Part.weigh, Part.weigh, Part.add, Part.view, Part.change, Part.detach, Part.hook, Part.custom]
STEPS = [
    *LOCAL_STEPS,
    *(Part.weigh, Part.change, Part.change),
    *(Part.call, Part.call, Part.start, Part.start, Part.chain, Part.gather),
    *(Part.refer, Part.without_gradients, Part.by_threads, Part.recompute),
]


def run_part(seed, depth, here, values, twice, may_change):
    values = list(values)
    if twice:
        values[-1] = values[0] * 2 + values[-1]
        values[0] = values[0] * 1.0
    return Part(seed, depth, here, values, may_change).run()


@functions.async_execution
def run_later(*args):
    """Answers when a call of its own, to the next worker, has been answered."""
    there = (args[2] + 1) % WORKERS
    later = start(there, run_part, (args[0] + 1, 0, there, args[3][:1], False, args[5]))
    return later.then(lambda done: (run_part(*args), done.value()))


async def run_as_coroutine(*args):
    there = (args[2] + 1) % WORKERS
    first = await rpc.rpc_async(f"worker{there}", run_part, args=(args[0] + 1, 0, there, args[3][:1], False, args[5]))
    return await asyncio.to_thread(run_part, *args), first


def run_at_once(*args):
    there = (args[2] + 1) % WORKERS
    first = call(there, run_part, (args[0] + 1, 0, there, args[3][:1], False, args[5]))
    return run_part(*args), first


PLAIN = {run_later: run_at_once, run_as_coroutine: run_at_once}


def roots_of(seed, x, here):
    """One or two scalars."""
    values = tensors(Part(seed, 2, here, [x * 1.0], True).run())
    halves = [values, values[-1:]][: 1 + seed % 2]
    roots = [sum(value.abs().square().sum().double() for value in half) for half in halves]
    return [root if root.requires_grad else root + x.sum() for root in roots]


def pass_of(context_id, seed, x, here):
    """Forward and backward; whether there was anything to differentiate."""
    roots = roots_of(seed, x, here)
    if seed % 3 == 0:
        autograd.backward(context_id, roots)
    else:
        for root in roots:
            autograd.backward(context_id, [root], retain_graph=root is not roots[-1] or seed % 3 == 1)
        if seed % 3 == 1:
            autograd.backward(context_id, roots[:1])
    return [root.item() for root in roots]


def gradients_of(context_id, here):
    found = autograd.get_gradients(context_id)
    assert all(parameter.grad is None for parameter in PARAMETERS[here])
    return [found.get(parameter) for parameter in PARAMETERS[here]]


def new_input(seed):
    return torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def wanted(seed):
    """(values of the roots, gradients) of one process; nothing for a program that it refuses."""
    token = _is_local.set(True)
    try:
        x = new_input(seed)
        leaves = [x, *(parameter for own in PARAMETERS for parameter in own)]
        roots = roots_of(seed, x, starter_of(seed))
        given = [*roots, roots[0]] if seed % 3 == 1 else roots
        gradients = torch.autograd.grad(sum(given), leaves, allow_unused=True)
        return [root.item() for root in roots], gradients
    except RuntimeError as error:
        if "modified by an inplace" not in str(error):
            raise
        return None
    finally:
        _is_local.reset(token)


def starter_of(seed):
    return seed % 5 if seed % 5 < WORKERS else 0


def differing(seed):
    """What is wrong with one program, "" where all is right, "refused" or "skipped"."""
    right = wanted(seed)
    if right is None:
        return "skipped"
    x = new_input(seed)
    starter = starter_of(seed)
    with autograd.context() as context_id:
        try:
            values = rpc.rpc_sync(f"worker{starter}", pass_of, args=(context_id, seed, x, starter))
        except RuntimeError as error:
            if any(text in str(error) for text in REFUSALS):
                return "refused"
            raise
        found = [autograd.get_gradients(context_id).get(x)]
        for rank in range(WORKERS):
            found += rpc.rpc_sync(f"worker{rank}", gradients_of, args=(context_id, rank))
    faults = [f"values {values} for {right[0]}"] if not close(torch.tensor(values), torch.tensor(right[0])) else []
    for number, (mine, other) in enumerate(zip(found, right[1], strict=True)):
        if (mine is None) != (other is None) or (mine is not None and not close(mine, other)):
            faults.append(f"gradient {number} is {mine} for {other}")
    return "; ".join([f"program {seed}", *faults]) if faults else ""


def close(mine, other):
    # Types mix: what has passed through single precision differs by its order of additions.
    return mine.dtype == other.dtype and torch.allclose(mine, other, rtol=2e-5, atol=1e-6)


def check(found):
    assert [each for each in found if each not in ("", "refused", "skipped")] == []
    assert found.count("") > len(found) / 2, (found.count("refused"), found.count("skipped"))


def one_by_one(seeds):
    return [differing(seed) for seed in seeds]


def in_threads(seeds):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(differing, seeds))


def in_tasks(seeds):
    async def program(seed):
        return await asyncio.to_thread(differing, seed)

    async def all_of_them():
        found = []
        for at in range(0, len(seeds), 4):
            found += await asyncio.gather(*(program(seed) for seed in seeds[at : at + 4]))
        return found

    return asyncio.run(all_of_them())


# A1, A5
@pytest.mark.parametrize("run", [one_by_one, in_threads, in_tasks], ids=lambda run: run.__name__)
def test_random_programs_equal_one_process(tmp_path, run):
    for first in range(0, PROGRAMS, 20):  # as many as a group has the time for
        seeds = range(FIRST + first, FIRST + min(first + 20, PROGRAMS))
        run_group(lambda seeds=seeds: check(run(seeds)), WORKERS, tmp_path / f"store{first}")
