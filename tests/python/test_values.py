"""Values of Python there and back: what travels as tagged bytes, what is pickled, and that neither changes a value."""

import collections
import dataclasses
import enum
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwire import _C

PLAIN = [
    None,
    True,
    False,
    0,
    -(2**63),
    2**63 - 1,
    0.1,
    float("inf"),
    1 + 2j,
    "",
    "grüße \U0001f600",
    b"\x00\xff",
    (),
    (1, "a", None),
    [1, [2, [3]]],
    {},
    {"a": 1, 2: (3,), None: [4]},
]


class Color(enum.Enum):
    RED = 1


class Integer(int):
    pass


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Record:
    name: str
    data: torch.Tensor


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_not_pickled(value):
    assert _C.is_plain(value)
    there = _C.round_trip(value)
    assert there == value
    assert type(there) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**70),
        Color.RED,
        Integer(3),
        Point(1, 2),
        {1, 2},
        frozenset({3}),
        range(4),
        "\ud800",
        len,
        ValueError("x"),
    ],
    ids=repr,
)
def test_other_values_are_pickled(value):
    assert not _C.is_plain(value)
    there = _C.round_trip(value)
    assert type(there) is type(value)
    assert repr(there) == repr(value)


PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN_VALUES)
def test_any_plain_value_comes_back(value):
    there = _C.round_trip(value)
    assert there == value
    assert repr(there) == repr(value)  # 1 and True, 0.0 and -0.0 are equal


def test_a_tensor_keeps_what_it_is():
    base = torch.arange(12.0).reshape(3, 4)
    for tensor in (base, base[1:, ::2], base.t(), torch.ones(2, requires_grad=True), torch.empty(0, 3)):
        there = _C.round_trip({"x": [tensor]})["x"][0]
        assert torch.equal(there, tensor)
        assert there.stride() == tensor.stride()
        assert there.requires_grad == tensor.requires_grad


@pytest.mark.parametrize("beside", [None, Color.RED], ids=["tagged", "pickled"])
def test_a_parameter_stays_one(beside):
    parameter = torch.nn.Parameter(torch.ones(2))
    there, _ = _C.round_trip((parameter, beside))
    assert type(there) is torch.nn.Parameter
    assert there.requires_grad
    assert torch.equal(there, parameter)


class Labelled(torch.Tensor):
    pass


def test_a_tensor_subclass_stays_one():
    tensor = torch.ones(2).as_subclass(Labelled)
    tensor.label = "a"
    there = _C.round_trip([tensor])[0]
    assert type(there) is Labelled
    assert there.label == "a"
    assert torch.equal(there.as_subclass(torch.Tensor), torch.ones(2))


def test_a_module_arrives_with_its_parameters():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    there = _C.round_trip(module)
    assert [type(p) for p in there.parameters()] == [torch.nn.Parameter] * 2
    x = torch.ones(1, 2)
    assert torch.equal(there(x), module(x))


def test_objects_with_tensors_inside():
    there = _C.round_trip(Record("a", torch.ones(3)))
    assert there.name == "a"
    assert torch.equal(there.data, torch.ones(3))


def test_a_tensor_as_a_key():
    ((key, value),) = _C.round_trip({torch.ones(2): 5}).items()
    assert torch.equal(key, torch.ones(2))
    assert value == 5


def test_shared_containers_stay_shared():
    inner = [1]
    assert not _C.is_plain((inner, inner))
    first, second = _C.round_trip((inner, inner))
    assert first is second


def test_a_cycle_stays_a_cycle():
    cycle = [1]
    cycle.append(cycle)
    there = _C.round_trip(cycle)
    assert there[0] == 1
    assert there[1] is there


def test_a_tree_that_shares_its_branches_does_not_explode():
    value = (1,)
    for _ in range(60):
        value = (value, value)
    there = _C.round_trip(value)
    assert there[0] is there[1]


def test_deep_nesting():
    value = []
    for _ in range(150):
        value = [value]
    assert _C.round_trip(value) == value
    assert _C.is_plain([[[[1]]]])


def test_the_empty_tuple_may_occur_often():
    assert _C.is_plain([(), (), ((), ())])


def test_many_containers():
    value = [[i] for i in range(1000)]
    assert _C.is_plain(value)
    value.append(value[500])
    assert not _C.is_plain(value)
    there = _C.round_trip(value)
    assert there[1000] is there[500]


@pytest.mark.parametrize(
    "array", [np.arange(100_000), np.arange(3), np.ones((500, 4), order="F"), np.array(["a", None])]
)
def test_numpy_arrays(array):
    there = _C.round_trip({"x": array})["x"]
    assert there.dtype == array.dtype
    np.testing.assert_array_equal(there, array)
    assert there.flags.writeable
    assert there.flags.f_contiguous == array.flags.f_contiguous


def test_a_large_array_is_not_copied_into_the_pickle():
    from gradwire import _pickling

    array = np.zeros(1 << 20, dtype=np.uint8)
    data, tensors, references = _pickling.dumps((array, torch.ones(2)), 3, 0)
    assert len(data) < 500
    assert [t.numel() for t in tensors] == [1 << 20, 2]
    assert references == []
    there, tensor = _pickling.loads(memoryview(data), [None] * 3 + tensors, [])
    assert there.ctypes.data == array.ctypes.data
    assert tensor is tensors[1]


# What arrives is the receiver's own, so it can be written, and wrapped by torch without a warning.
@pytest.mark.parametrize(
    "array",
    [
        np.frombuffer(bytes(range(8)), np.uint8),
        np.frombuffer(bytes(5000), np.uint8),
        np.asfortranarray(np.ones((50, 40))).view(),
        np.broadcast_to(np.arange(5), (400, 5)),
        np.array([1, None, "text"]),
        np.ma.masked_array(np.arange(900.0), mask=[i % 2 for i in range(900)]),
        np.zeros((0, 5)),
    ],
)
def test_a_read_only_array_arrives_writable(array):
    array = array.view()
    array.flags.writeable = False
    there, same = _C.round_trip((array, array))
    assert there is same
    assert type(there) is type(array)
    np.testing.assert_array_equal(there, array)
    assert there.flags.writeable
    assert there.flags.f_contiguous == array.flags.f_contiguous or not array.flags.forc
    assert not array.flags.writeable


def test_pickling_inside_pickling():
    there = _C.round_trip((Nested(torch.ones(2)), torch.zeros(3)))
    assert torch.equal(there[0].tensor, torch.ones(2))
    assert torch.equal(there[1], torch.zeros(3))


class Nested:
    """Its state is a value of its own."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getstate__(self):
        return _C.round_trip([self.tensor, Color.RED])

    def __setstate__(self, state):
        self.tensor = _C.round_trip(state)[0]


def test_what_pickle_refuses_is_raised_as_it_is():
    with pytest.raises(TypeError, match="cannot pickle"):
        _C.round_trip({"file": sys.stdout})
    with pytest.raises(RuntimeError, match=r"Can not pickle torch\.futures"):
        _C.round_trip([torch.futures.Future()])


def test_nothing_leaks():
    tensor = torch.ones(2)
    value = {"x": [tensor, "text", (1.5, None)], "y": Color.RED}
    before = sys.getrefcount(tensor), sys.getrefcount(value["x"])
    for _ in range(10):
        _C.round_trip(value)
        _C.is_plain(value)
    assert (sys.getrefcount(tensor), sys.getrefcount(value["x"])) == before
