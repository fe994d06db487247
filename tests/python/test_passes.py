"""Backward passes over two processes: what ends them, and which leaves they give a gradient to."""

import threading

import pytest
import torch

from gradwire import Error, autograd, functions, rpc

_reached = threading.Event()


@functions.async_execution
def never():
    _reached.set()
    return torch.futures.Future()


def waits_in_backward(x):
    x.register_hook(lambda gradient: rpc.rpc_sync("worker0", never, timeout=0))
    return x.sum()


# C1
def test_shutdown_in_another_thread_ends_backward(group):
    def body():
        faults = []

        def program():
            with autograd.context() as context_id:
                root = rpc.rpc_sync("worker1", waits_in_backward, args=(torch.ones(2, requires_grad=True),))
                with pytest.raises(Error, match="worker 'worker0' has shut down") as caught:
                    autograd.backward(context_id, [root])
                faults.append(caught.value.code)

        thread = threading.Thread(target=program)
        thread.start()
        _reached.wait()
        rpc.shutdown(graceful=False)
        thread.join()
        assert faults == ["Disconnected"]

    group(body)


def two_results(x, used, unused):
    return x * used, Doubled.apply(x * unused)


class Doubled(torch.autograd.Function):
    """Its backward is given zeros where there is no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


# A1: local autograd does not come to what is unused, so that an optimizer leaves it alone.
def test_what_is_unused_inside_a_used_message_gets_no_gradient(group):
    def body():
        x, used, unused = (torch.rand(3, requires_grad=True) for _ in range(3))
        with autograd.context() as context_id:
            a, _ = rpc.rpc_sync("worker1", two_results, args=(x, used, unused))
            autograd.backward(context_id, [a.sum()])
            gradients = autograd.get_gradients(context_id)
        assert set(gradients) == {x, used}
        assert torch.equal(gradients[x], used)

    group(body)


class Severed(torch.autograd.Function):
    """Its backward has no gradient for its input."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return None


def severed_and_not(x, y):
    return Severed.apply(x), y * 2


# A1
def test_a_gradient_that_a_node_does_not_give_is_none_on_all_workers(group):
    def body():
        x, y, first = (torch.rand(3, requires_grad=True) for _ in range(3))
        with autograd.context() as context_id:
            both = rpc.rpc_sync("worker1", severed_and_not, args=(x * first, y))
            autograd.backward(context_id, [sum(both).sum()])
            assert list(autograd.get_gradients(context_id)) == [y]

    group(body)


_hooked = {}


def with_hook(x):
    weight = _hooked["weight"] = torch.full((3,), 2.0, requires_grad=True)
    seen = _hooked["seen"] = []
    weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.clone()))
    return x * weight


def hooked(context_id):
    weight = _hooked["weight"]
    return _hooked["seen"], autograd.get_gradients(context_id)[weight], weight.grad


# A4
def test_post_accumulate_hooks_run_once_per_pass(group):
    def body():
        x = torch.rand(3, requires_grad=True)
        steps = []

        def step(leaf):
            steps.append(leaf.grad)
            leaf.grad = None

        x.register_post_accumulate_grad_hook(step)
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", with_hook, args=(x,)).sum()
            for _ in range(2):
                autograd.backward(context_id, [loss], retain_graph=True)
            seen, there, local = rpc.rpc_sync("worker1", hooked, args=(context_id,))
            assert x not in autograd.get_gradients(context_id)
        assert [gradient.tolist() for gradient in seen] == [x.tolist(), (2 * x).tolist()]
        assert torch.equal(there, 2 * x)
        assert local is None
        assert x.grad is None
        assert [step.tolist() for step in steps] == [[2.0] * 3] * 2

    group(body)


def sum_of_views(a, b):
    return a + b.view(3)


def weighted_sum(a, b):
    return a + b


# A4: gradients that share memory where they are made, or that came in one message, are each a leaf's own.
@pytest.mark.parametrize("function", [weighted_sum, sum_of_views])
@pytest.mark.parametrize("is_remote", [True, False])
def test_leaves_do_not_share_the_memory_of_their_gradients(group, function, is_remote):
    def body():
        a = torch.zeros(3, requires_grad=True)
        b = torch.zeros((1, 3) if function is sum_of_views else 3, requires_grad=True)
        with autograd.context() as context_id:
            total = rpc.rpc_sync("worker1", function, args=(a, b)) if is_remote else function(a, b)
            loss = (total * torch.ones(3)).sum()
            for number in range(1, 4):
                autograd.backward(context_id, [loss], retain_graph=True)
                gradients = autograd.get_gradients(context_id)
                assert [gradients[leaf].sum().item() for leaf in (a, b)] == [3 * number] * 2
            gradients[a].zero_()
            assert gradients[b].sum() == 9

    group(body)
