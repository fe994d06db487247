"""RemoteModule, beyond what PyTorch's own tests of it ask."""

import torch

from gradwire import nn


def test_it_says_where_it_is(alone):
    assert repr(nn.RemoteModule("me/cpu", torch.nn.Linear, args=(2, 3))) == "RemoteModule(on='me', device='cpu')"
