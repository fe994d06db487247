"""What errors say: they name what the program has called, not what carries it (C5)."""

import os
import threading

import pytest
import torch

from gradwire import Error, nn, rpc

let_go = threading.Event()


def held():
    let_go.wait(30)


def release():
    let_go.set()


def leave():
    os._exit(0)


class Holder:
    def held(self):
        held()


class Held(torch.nn.Module):
    def forward(self):
        held()


def message_of(wait):
    with pytest.raises(Error) as caught:
        wait()
    assert "py." not in str(caught.value)
    assert "rref." not in str(caught.value)
    return str(caught.value)


def _timeouts():
    assert "'held'" in message_of(lambda: rpc.rpc_sync("worker1", held, timeout=0.1))
    assert "'held'" in message_of(rpc.rpc_async("worker1", held, timeout=0.1).wait)
    assert "'Holder.held'" in message_of(lambda: rpc.rpc_sync("worker1", Holder().held, timeout=0.1))
    holder = rpc.remote("worker1", Holder)
    assert "'held'" in message_of(lambda: holder.rpc_sync(timeout=0.1).held())
    value = rpc.remote("worker1", held)
    assert "to_here() of an RRef" in message_of(lambda: value.to_here(timeout=0.1))
    forward = nn.RemoteModule("worker1/cpu", Held).forward_async()
    assert forward.cancel()
    assert "'RemoteModule.forward'" in message_of(forward.wait)
    rpc.rpc_sync("worker1", release)


def test_a_timeout_names_the_function(group):
    group(_timeouts)


def _cancelled():
    call = rpc.rpc_async("worker1", held)
    assert call.cancel()
    assert "'held'" in message_of(call.wait)
    rpc.rpc_sync("worker1", release)


def test_a_cancelled_call_names_its_function(group):
    group(_cancelled)


def test_a_lost_call_names_its_function(tmp_path, scripts):
    program = f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_error_texts import held, leave, message_of
        from gradwire import rpc

        rank = int(sys.argv[1])
        options = rpc.TensorPipeRpcBackendOptions(init_method="file://{tmp_path}/store")
        rpc.init_rpc(f"worker{{rank}}", rank=rank, world_size=2, rpc_backend_options=options)
        if rank == 0:
            calls = [rpc.rpc_async("worker1", held), rpc.rpc_async("worker1", leave)]
            print(message_of(calls[0].wait))
        rpc.shutdown()
    """
    scripts.start(program, 1)
    code, out, err = scripts.run(program, 0)
    assert code == 0, err
    assert "'held' may have run" in out


def test_an_operator_is_called_what_the_program_calls_it(alone):
    with pytest.raises(RuntimeError) as caught:
        rpc.rpc_sync("me", torch.add, args=())
    assert caught.value.__notes__ == ["in the call of 'torch.add' on worker 'me'"]
