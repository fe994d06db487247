"""What a program may get wrong in a call: an error at once that names the worker, the function and the cause."""

import threading

import pytest
import torch

from gradwire import Error, rpc


def add(x, y=1):
    return x + y


def told(exception):
    """All that a person reads of it."""
    return "\n".join([str(exception), *getattr(exception, "__notes__", ())])


CALLS = {"rpc_sync": rpc.rpc_sync, "rpc_async": rpc.rpc_async, "remote": rpc.remote}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_cannot_be_sent(group, call):
    def body():
        for function, args, error, cause, name in (
            (add, (threading.Lock(),), TypeError, "cannot pickle '_thread.lock' object", "add"),
            (add, ({"deep": [lambda: 1]},), Exception, "lambda", "add"),
            (torch.add, (), RuntimeError, "failed to match any schema", "add"),
            (torch.mm, (torch.ones(2), "x"), RuntimeError, "failed to match any schema|Expected a value of type", "mm"),
            (torch.mm, (torch.ones(2),) * 5, RuntimeError, "expected at most 2 argument", "mm"),
            (add, 5, TypeError, "args must be a tuple", "add"),
            ("registered", ({1, 2},), TypeError, "takes plain values", "registered"),
        ):
            with pytest.raises(error, match=cause) as caught:
                call("worker1", function, args=args)
            assert f"{name}' on worker 'worker1'" in told(caught.value), told(caught.value)
        with pytest.raises(Error, match="no worker named 'nobody'"):
            call("nobody", add, args=(1,))

    group(body)


@pytest.mark.parametrize("timeout", [None, "5", [1]])
def test_a_timeout_that_is_no_number(alone, timeout):
    value = rpc.RRef(1)
    for call in (
        lambda: rpc.rpc_sync("me", add, args=(1,), timeout=timeout),
        lambda: rpc.rpc_async("me", add, args=(1,), timeout=timeout),
        lambda: rpc.remote("me", add, args=(1,), timeout=timeout),
        lambda: rpc.all_gather(1, timeout=timeout),
        lambda: value.to_here(timeout=timeout),
        lambda: value.rpc_sync(timeout=timeout).bit_length(),
    ):
        with pytest.raises(TypeError, match=r"timeout must be a number of seconds .*not ") as caught:
            call()
        assert str(caught.value).endswith(f"not {timeout!r}")


def test_what_is_no_function(alone):
    with pytest.raises(TypeError, match=r"^5 is not callable") as caught:
        rpc.rpc_sync("me", 5)
    assert "'int'" not in told(caught.value)


# Without an accelerator: libtorch's lazy device is none that others share memory with, as little as a GPU.
def test_a_tensor_of_an_accelerator(scripts, tmp_path):
    code, _, err = scripts.run(
        """
        import sys
        import torch
        import torch._lazy.ts_backend
        from gradwire import Error, rpc

        def same(x):
            return x

        def make():
            return torch.ones(2, device="lazy")

        torch._lazy.ts_backend.init()
        rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method="file://" + sys.argv[1]))
        tensor = make()
        for function, args in ((same, (tensor,)), (torch.add, (tensor, 1)), (same, ({"deep": [tensor]},)), (make, ())):
            try:
                rpc.rpc_sync("me", function, args=args)
            except Error as error:
                assert "a tensor on lazy:0 cannot travel without a device map; send tensor.cpu()" in str(error), error
                assert "'me'" in str(error) or error.worker == "me", error
            else:
                raise AssertionError("no error")
        assert rpc.rpc_sync("me", same, args=(tensor.cpu(),)).tolist() == [1, 1]
        rpc.shutdown()
        """,
        tmp_path / "store",
    )
    assert code == 0, err
