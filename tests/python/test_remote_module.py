"""RemoteModule, beyond what PyTorch's own tests of it ask."""

import pytest
import torch

from gradwire import autograd, nn, rpc


def test_it_says_where_it_is(alone):
    assert repr(nn.RemoteModule("me/cpu", torch.nn.Linear, args=(2, 3))) == "RemoteModule(on='me', device='cpu')"


def test_hooks_of_backward_run(alone):
    module = nn.RemoteModule("me/cpu", torch.nn.Linear, args=(2, 1))
    ran = []
    module.register_full_backward_pre_hook(lambda *_: ran.append("pre"))
    module.register_full_backward_hook(lambda *_: ran.append("full"))
    with autograd.context() as context:
        autograd.backward(context, [module(torch.ones(2, requires_grad=True) * 1).sum()])
    assert ran == ["pre", "full"]


def use(module):
    return module(torch.ones(2)).shape


def test_what_travels(alone):
    module = nn.RemoteModule("me/cpu", torch.nn.Linear, args=(2, 1))
    assert rpc.rpc_sync("me", use, args=(module,)) == (1,)
    module.note = 5
    with pytest.warns(UserWarning, match="do not travel with it: note"):
        assert rpc.rpc_sync("me", use, args=(module,)) == (1,)
