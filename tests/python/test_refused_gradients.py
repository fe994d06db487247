"""Where a gradient would be missed or wrong, there is an error that says so. Each test ends one or the other way."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from gradwire import Error, autograd, rpc


def leaf(size=4):
    return torch.ones(size, requires_grad=True)


def gradient(context_id, x, y):
    autograd.backward(context_id, [y.sum()])
    return autograd.get_gradients(context_id)[x].tolist()


def with_a_slice(x):
    h = x * 2
    return h, h[:2]


def change_the_whole(whole, part):
    whole.mul_(10)
    return part


# A1
def test_views_of_one_message_are_not_changed_apart(group):
    def body():
        x = leaf()
        with autograd.context() as context_id:
            whole, part = rpc.rpc_sync("worker1", with_a_slice, args=(x,))
            with pytest.raises(RuntimeError, match="modified inplace"):
                whole.mul_(10)
            assert gradient(context_id, x, part) == [2, 2, 0, 0]
        with autograd.context() as context_id:
            whole, part = rpc.rpc_sync("worker1", with_a_slice, args=(x,))
            loss = (whole * whole).sum()
            with torch.no_grad():
                part.zero_()
            with pytest.raises(RuntimeError, match="modified inplace"):
                autograd.backward(context_id, [loss])
        with autograd.context(), pytest.raises(RuntimeError, match="modified inplace"):
            rpc.rpc_sync("worker1", change_the_whole, args=with_a_slice(x))

    group(body)


def test_shared_memory_is_noticed_where_only_the_other_factor_requires_grad(group):
    def body():
        weight = leaf()
        whole, part = rpc.rpc_sync("worker1", with_a_slice, args=(torch.ones(4),))
        loss = (weight * whole).sum()
        part.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    group(body)


def double(x):
    return x * 2


_weight = torch.nn.Parameter(torch.full((4,), 3.0))


def weighted(x):
    return x * _weight


def parameter():
    return _weight


@pytest.mark.parametrize("requires_grad", [True, False])
def test_calls_of_threads_outside_of_the_context(group, requires_grad):
    def body():
        x = torch.ones(4, requires_grad=requires_grad)
        with ThreadPoolExecutor(2) as pool, autograd.context() as context_id:
            parts = [pool.submit(rpc.rpc_sync, "worker1", weighted, args=(x,)) for _ in range(2)]
            loss = sum(part.result() for part in parts).sum()
            with pytest.raises(Error, match=r"worker 1 has computed .*copy_context\(\)\.run"):
                autograd.backward(context_id, [loss])
            assert autograd.get_gradients(context_id) == {}

    group(body)


def test_histories_end_without_an_error_where_no_gradient_is_missed(group):
    def body():
        received = rpc.rpc_sync("worker1", parameter)
        with torch.no_grad():
            computed = rpc.rpc_sync("worker1", weighted, args=(torch.ones(4),))
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", double, args=(received * computed,))
            assert gradient(context_id, received, loss) == [6] * 4
        outside = rpc.rpc_sync("worker1", weighted, args=(torch.ones(4),))
        outside.sum().backward()
        assert outside.grad.tolist() == [1] * 4

    group(body)


def test_the_history_of_an_argument_ends_as_well(group):
    def body():
        x = leaf()
        kept = rpc.remote("worker1", weighted, args=(x * 2,))
        with autograd.context() as context_id, pytest.raises(Error, match="worker 0 has computed"):
            autograd.backward(context_id, [kept.to_here().sum()])

    group(body)


class Carrier(Exception):
    pass


def raises_a_result(x):
    raise Carrier(x * 3)


def passes_it_on(x):
    return rpc.rpc_sync("worker0", raises_a_result, args=(x,))


# A1
@pytest.mark.parametrize("function", [raises_a_result, passes_it_on])
def test_a_tensor_that_an_exception_brings_refuses_its_gradient(group, function):
    def body():
        x = leaf()
        with autograd.context() as context_id:
            with pytest.raises(Carrier) as caught:
                rpc.rpc_sync("worker1", function, args=(x,))
            (brought,) = caught.value.args
            assert brought.tolist() == [3] * 4
            loss = rpc.rpc_sync("worker1", double, args=(x,))
            with pytest.raises(Error, match="exception has brought"):
                autograd.backward(context_id, [(loss * brought).sum()])
            assert autograd.get_gradients(context_id) == {}
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", double, args=(x,))
            assert gradient(context_id, x, loss * brought.detach()) == [6] * 4

    group(body)


class Named(torch.Tensor):
    pass


def named(x):
    return (x * _weight).as_subclass(Named)


def named_inside(x):
    return {"kept": [Holder(named(x))]}


class Holder:
    def __init__(self, value):
        self.value = value


# A1
def test_a_subclass_outside_of_contexts_keeps_that_its_history_ends(group):
    def body():
        x = leaf()
        for there in (
            rpc.rpc_sync("worker1", named, args=(x,)),
            rpc.rpc_sync("worker1", named_inside, args=(x,))["kept"][0].value,
        ):
            assert type(there) is Named
            with autograd.context() as context_id:
                loss = rpc.rpc_sync("worker1", double, args=(there,))
                with pytest.raises(Error, match="worker 1 has computed"):
                    autograd.backward(context_id, [loss.sum()])

    group(body)


def gathers_in_a_context():
    x = leaf(2)
    with autograd.context() as context_id:
        all_parts = rpc.all_gather(x * (rpc.get_worker_info().id + 1))
        y = rpc.rpc_sync("worker0", double, args=(x,))
        values = [all_parts[f"worker{rank}"].tolist() for rank in range(3)]
        assert gradient(context_id, x, y) == [2, 2]
    with autograd.context() as context_id:
        other = all_parts["worker2" if rpc.get_worker_info().id != 2 else "worker1"]
        with pytest.raises(Error, match=r"all_gather\(\) is outside"):
            autograd.backward(context_id, [(rpc.rpc_sync("worker0", double, args=(x,)) * other).sum()])
    return values


def test_all_gather_is_outside_of_contexts(group):
    def body():
        others = [rpc.rpc_async(f"worker{rank}", gathers_in_a_context) for rank in (1, 2)]
        values = [gathers_in_a_context(), *(other.wait() for other in others)]
        assert values == [[[1, 1], [2, 2], [3, 3]]] * 3

    group(body, world_size=3)


def dual():
    return forward_ad.make_dual(torch.ones(2), torch.ones(2))


def makes_a_dual(x):
    with forward_ad.dual_level():
        return dual()


def test_dual_tensors_do_not_travel(group):
    def body():
        with forward_ad.dual_level():
            with pytest.raises(Error, match=r"dual tensor .*unpack_dual"):
                rpc.rpc_sync("worker1", double, args=(dual(),))
            with pytest.raises(Error, match=r"dual tensor .*unpack_dual"):
                rpc.rpc_sync("worker1", torch.mul, args=(dual(), 2))
        with pytest.raises(RuntimeError, match="cannot"):
            torch.func.grad(lambda x: rpc.rpc_sync("worker1", double, args=(x,)).sum())(torch.ones(2))
        with pytest.raises(RuntimeError, match="cannot"):
            torch.func.vmap(lambda x: rpc.rpc_sync("worker1", double, args=(x,)))(torch.ones(2, 2))

    group(body)


def stage(x, use_reentrant):
    return checkpoint(lambda h: torch.tanh(h * _weight), x, use_reentrant=use_reentrant)


def gradients_of_the_stage(context_id):
    return autograd.get_gradients(context_id).get(_weight), _weight.grad


# A1
@pytest.mark.parametrize("place", ["callee", "caller"])
def test_checkpoints_give_their_gradients_or_say_why_not(group, place):
    def forward(x, use_reentrant):
        if place == "callee":
            return rpc.rpc_sync("worker1", stage, args=(x, use_reentrant))
        return checkpoint(
            lambda h: torch.tanh(rpc.rpc_sync("worker1", weighted, args=(h,))), x, use_reentrant=use_reentrant
        )

    def body():
        x = leaf()
        right = 1 - torch.tanh(torch.tensor(3.0)) ** 2
        with autograd.context() as context_id:
            autograd.backward(context_id, [forward(x, False).sum()])
            there, local = rpc.rpc_sync("worker1", gradients_of_the_stage, args=(context_id,))
            assert torch.allclose(autograd.get_gradients(context_id)[x], 3 * right)
            assert torch.allclose(there, right)
            assert local is None
        with autograd.context() as context_id:
            with pytest.raises(RuntimeError, match="use_reentrant=False"):
                autograd.backward(context_id, [forward(x, True).sum()])
            assert rpc.rpc_sync("worker1", gradients_of_the_stage, args=(context_id,)) == (None, None)
            assert autograd.get_gradients(context_id) == {}
            assert x.grad is None

    group(body)
