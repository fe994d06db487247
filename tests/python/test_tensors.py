"""Tensors there and back between two processes: every dtype and layout, and what else a tensor is."""

import enum
import warnings

import numpy as np
import pytest
import torch

from gradwire import autograd, rpc

pytestmark = pytest.mark.filterwarnings("ignore")


class Color(enum.Enum):
    """What makes a message a pickle."""

    RED = 1


class Labelled(torch.Tensor):
    pass


def _bytes(tensor):
    """The elements of a strided tensor, byte by byte, whatever its dtype can do."""
    size = tensor.element_size()
    view = torch.empty(0, dtype=torch.uint8).set_(
        tensor.detach().untyped_storage(),
        tensor.storage_offset() * size,
        (*tensor.shape, size),
        (*(stride * size for stride in tensor.stride()), 1),
    )
    return view.reshape(-1).tolist()


def describe(tensor):
    """All that a tensor is, in values that can be compared."""
    seen = {
        "type": type(tensor).__name__,
        "dtype": str(tensor.dtype),
        "layout": str(tensor.layout),
        "device": str(tensor.device),
        "shape": tuple(tensor.shape),
        "requires grad": tensor.requires_grad,
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "attributes": {name: value for name, value in tensor.__dict__.items() if name == "label"},
    }
    plain = tensor.detach()
    if isinstance(plain, Labelled):
        plain = plain.as_subclass(torch.Tensor)
    if tensor.layout is torch.sparse_coo:
        parts = [plain._indices(), plain._values()]
        seen["coalesced"] = tensor.is_coalesced()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [plain.crow_indices(), plain.col_indices(), plain.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [plain.ccol_indices(), plain.row_indices(), plain.values()]
    else:
        seen["stride"] = tensor.stride()
        seen["contiguous"] = tensor.is_contiguous()
        if tensor.is_meta:
            seen["offset"] = tensor.storage_offset()
        else:
            seen["bytes"] = _bytes(plain)
        if tensor.is_quantized:
            seen["scheme"] = str(tensor.qscheme())
            if tensor.qscheme() == torch.per_tensor_affine:
                seen["quantizer"] = (tensor.q_scale(), tensor.q_zero_point())
            else:
                scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
                seen["quantizer"] = (tensor.q_per_channel_axis(), scales.tolist(), zeros.tolist())
        return seen
    seen["parts"] = [(str(part.dtype), tuple(part.shape), _bytes(part)) for part in parts]
    return seen


def describe_and_return(tensor, beside=None):
    return describe(tensor), tensor, beside


def _matrix(dtype=torch.float32):
    return (torch.arange(24).reshape(4, 6) % 5).to(dtype)


def _dtypes():
    """Every dtype that torch has, but for those of quantized tensors."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted((dtype for dtype in found if not str(dtype).startswith("torch.q")), key=str)


def _of_dtype(dtype):
    size = torch.empty(1, dtype=dtype).element_size()
    if dtype is torch.bool:
        return torch.tensor([[True, False, True], [False, False, True]])
    return torch.empty(2, 3, dtype=dtype).set_(
        (torch.arange(6 * size) * 37 % 251).to(torch.uint8).untyped_storage(), 0, (2, 3), (3, 1)
    )


def _quantized(per_channel, dtype):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if per_channel:
            scales, zeros = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), torch.tensor([1, 2, 3])
            return torch.quantize_per_channel(x, scales, zeros, 0, dtype)
        return torch.quantize_per_tensor(x, 0.1, 3, dtype)


def _labelled():
    tensor = torch.ones(2).as_subclass(Labelled)
    tensor.label = "a"
    return tensor


CASES = {f"dtype {dtype}": lambda dtype=dtype: _of_dtype(dtype) for dtype in _dtypes()}
CASES |= {
    f"{kind} {dtype}": lambda per=per, dtype=dtype: _quantized(per, dtype)
    for kind, per in [("per tensor", False), ("per channel", True)]
    for dtype in (torch.qint8, torch.quint8, torch.qint32)
}
CASES |= {
    "0-dim": lambda: torch.tensor(3.5),
    "no elements": lambda: torch.empty(0),
    "no elements, strides": lambda: torch.empty(3, 0, 7).transpose(0, 2),
    "transposed": lambda: _matrix().t(),
    "every second": lambda: _matrix()[1:, ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.ones(3, 1).expand(3, 1000),
    "overlapping": lambda: torch.arange(10).unfold(0, 3, 1),
    "large": lambda: torch.arange(200_000, dtype=torch.int16),
    "leaf that requires grad": lambda: torch.ones(2, requires_grad=True),
    "result that requires grad": lambda: torch.ones(2, requires_grad=True) * 2,
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
    "conjugate view": lambda: torch.randn(3, 4, dtype=torch.complex128).conj(),
    "negative view": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "COO": lambda: _matrix().to_sparse(),
    "COO, not coalesced": lambda: torch.sparse_coo_tensor([[3, 1, 3]], [1.0, 2.0, 3.0], (5,)),
    "COO, hybrid": lambda: _matrix().to_sparse(1),
    "COO, no entries": lambda: torch.sparse_coo_tensor(size=(2, 3)),
    "COO, requires grad": lambda: _matrix().to_sparse().requires_grad_(),
    "CSR": lambda: _matrix().to_sparse_csr(),
    "CSC": lambda: _matrix(torch.float64).to_sparse_csc(),
    "BSR": lambda: _matrix().to_sparse_bsr((2, 3)),
    "BSC": lambda: _matrix().to_sparse_bsc((2, 3)),
    "CSR, batched": lambda: torch.stack([_matrix(), _matrix()]).to_sparse_csr(),
    "meta": lambda: torch.empty(3, 4, device="meta")[1:, ::2],
    "meta, bfloat16": lambda: torch.empty(2, device="meta", dtype=torch.bfloat16),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "parameter, transposed": lambda: torch.nn.Parameter(_matrix().t()),
    "buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "subclass": _labelled,
    "subclass, requires grad": lambda: torch.ones(2, requires_grad=True).as_subclass(Labelled),
}


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_every_dtype_and_layout_arrives_and_comes_back(group, beside):
    def body():
        wrong = []
        for name, make in CASES.items():
            tensor = make()
            expected = describe(tensor)
            seen, back, _ = rpc.rpc_sync("worker1", describe_and_return, args=(tensor, beside))
            wrong += [(name, "there", key, seen[key], expected[key]) for key in expected if seen[key] != expected[key]]
            seen = describe(back)
            wrong += [(name, "back", key, seen[key], expected[key]) for key in expected if seen[key] != expected[key]]
        assert not wrong, "\n".join(map(str, wrong))

    group(body)


def test_the_table_has_what_torch_has():
    assert len(_dtypes()) >= 40
    layouts = {str(make().layout) for name, make in CASES.items() if not name.startswith("dtype")}
    assert layouts == {
        f"torch.{name}" for name in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
    }


def is_fresh_leaf(tensor, beside):
    return tensor.is_leaf and tensor.requires_grad and tensor.grad is None


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_what_requires_grad_arrives_as_a_leaf(group, beside):
    def body():
        plain = torch.ones(2, requires_grad=True)
        plain.sum().backward()
        for tensor in (plain, plain * 2, torch.nn.Parameter(torch.ones(2)), plain.as_subclass(Labelled)):
            assert rpc.rpc_sync("worker1", is_fresh_leaf, args=(tensor, beside))

    group(body)


def shares(values):
    """Changes the first value; what the others then are."""
    first, *others = values[:-1]
    with torch.no_grad():
        first.fill_(7)
    return [other.tolist() for other in others], [tensor.untyped_storage().nbytes() for tensor in values[:-1]]


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_views_of_one_storage_share_it_on_arrival(group, beside):
    def body():
        base = torch.zeros(10)
        seen, _ = rpc.rpc_sync("worker1", shares, args=([base[:4], base[2:6], base[8:], base.clone()[:2], beside],))
        assert seen == [[7, 7, 0, 0], [0, 0], [0, 0]]
        assert base.sum() == 0, "arguments are never aliased"
        seen, _ = rpc.rpc_sync("worker0", shares, args=([base, base[5:7], beside],))
        assert seen == [[7, 7]]
        assert base.sum() == 0, "nor those of a call to oneself"

    group(body)


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_a_small_view_ships_only_what_it_covers(group, beside):
    def body():
        base = torch.zeros(1_000_000)
        _, sizes = rpc.rpc_sync("worker1", shares, args=([base[5:7], base[900_000:].view(2, -1)[0, :3], beside],))
        assert sizes == [8, 12]

    group(body)


def same(values):
    return [values[0] is value for value in values]


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_one_tensor_twice_stays_one(group, beside):
    def body():
        x = torch.nn.Parameter(torch.ones(2))
        y = torch.ones(2)
        assert rpc.rpc_sync("worker1", same, args=([x, x, y, beside],)) == [True, True, False, False]
        many = [torch.ones(1) for _ in range(100)]
        assert sum(rpc.rpc_sync("worker1", same, args=([many[50], *many, beside],))) == 2

    group(body)


def twice(values):
    return values[0] * 2


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
@pytest.mark.parametrize("make", [torch.nn.Parameter, torch.Tensor.requires_grad_, Labelled])
def test_gradients_come_through_every_form(group, beside, make):
    def body():
        x = make(torch.ones(3)).requires_grad_()
        with autograd.context() as context:
            autograd.backward(context, [rpc.rpc_sync("worker1", twice, args=([x, beside],)).sum()])
            assert autograd.get_gradients(context)[x].tolist() == [2, 2, 2]

    group(body)


_kept = torch.nn.Parameter(torch.ones(2))


def parameter_of():
    return _kept


def gradient_of_parameter(context):
    return autograd.get_gradients(context)[parameter_of()]


def test_a_returned_parameter_is_one_and_keeps_its_edge(group):
    def body():
        with autograd.context() as context:
            there = rpc.rpc_sync("worker1", parameter_of)
            assert type(there) is torch.nn.Parameter
            autograd.backward(context, [(there * 3).sum()])
            assert rpc.rpc_sync("worker1", gradient_of_parameter, args=(context,)).tolist() == [3, 3]

    group(body)


class TwoTensors(torch.Tensor):
    """A wrapper: its values are those of other tensors."""

    @staticmethod
    def __new__(cls, first, second):
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)

    def __init__(self, first, second):
        self.first = first
        self.second = second

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)

    def __reduce_ex__(self, protocol):
        return TwoTensors, (self.first, self.second)


def sum_of(wrapper):
    return wrapper.first + wrapper.second


def test_a_wrapper_travels_by_its_own_pickling(group):
    def body():
        wrapper = TwoTensors(torch.ones(2), torch.full((2,), 2.0))
        assert rpc.rpc_sync("worker1", sum_of, args=(wrapper,)).tolist() == [3, 3]

    group(body)


def array_sums(arrays):
    arrays["a"][0] = 5  # private and writable
    return {name: float(array.sum()) for name, array in arrays.items()}, arrays["a"]


def test_numpy_arrays_travel_beside_the_pickle(group):
    def body():
        arrays = {"a": np.ones(300_000), "small": np.arange(3), "turned": np.ones((500, 40), order="F")}
        sums, back = rpc.rpc_sync("worker1", array_sums, args=(arrays,))
        assert sums == {"a": 300_004.0, "small": 3.0, "turned": 20_000.0}
        assert back[0] == 5
        assert arrays["a"][0] == 1

    group(body)


class Node:
    def __init__(self, data):
        self.data = data
        self.next = self


def ring(node):
    return node.next is node and node.data is node.next.data, node


def test_cycles_and_shared_references_arrive(group):
    def body():
        closed, back = rpc.rpc_sync("worker1", ring, args=(Node(torch.ones(2)),))
        assert closed
        assert back.next is back
        assert back.data.tolist() == [1, 1]
        inner = [torch.ones(1)]
        first, second = rpc.rpc_sync("worker1", _return, args=([inner, inner],))
        assert first is second

    group(body)


def _return(value):
    return value


def ends(tensor):
    return tensor.numel(), tensor[:3].tolist(), tensor[2**31 - 1 : 2**31 + 2].tolist(), tensor[-3:].tolist()


@pytest.mark.slow
def test_over_two_gib(group):
    def body():
        size = int(2.1 * 2**30)
        tensor = torch.zeros(size, dtype=torch.int8)
        tensor[:3] = tensor[2**31 - 1 : 2**31 + 2] = tensor[-3:] = torch.tensor([1, 2, 3], dtype=torch.int8)
        assert rpc.rpc_sync("worker1", ends, args=(tensor,)) == (size, [1, 2, 3], [1, 2, 3], [1, 2, 3])

    group(body)
