"""Remote references from Python."""

import copy
import pickle
import threading

import pytest
import torch

from gradwire import Error, rpc


class Counter:
    def __init__(self, start=0):
        self.count = start

    def increase(self, by=1):
        self.count += by
        return self.count

    def itself(self):
        return self

    def fail(self):
        raise KeyError("no such count")


def same(value):
    return value


def fail(text):
    raise ValueError(text)


def local_count(rref):
    return rref.local_value().count


def fetched_count(rref):
    assert not rref.is_owner() or rref.to_here() is rref.local_value()
    return rref.to_here().count


def forward(to, function, *args):
    return rpc.rpc_sync(to, function, args=args)


def own_rref(value):
    return rpc.RRef(value)


def make_rrefs():
    return {"a": rpc.RRef(Counter(1)), "b": [rpc.remote("worker0", Counter, args=(2,))]}


def make_lock():
    return threading.Lock()


def wait_for_release():
    assert _release.wait(50)
    return 5


def release():
    _release.set()


_release = threading.Event()


def test_remote_and_its_uses(group):
    def body():
        rref = rpc.remote("worker1", Counter, args=(3,))
        assert str(rref).startswith("UserRRef(RRefId = GloballyUniqueId(created_on=0, local_id=0), ForkId = ")
        assert rref.owner() == rpc.get_worker_info("worker1")
        assert rref.owner_name() == "worker1"
        assert not rref.is_owner()
        assert rref.to_here().count == 3
        while not rref.confirmed_by_owner():  # the answer to the fetch may come before that to the creation
            pass
        assert rref.rpc_sync().increase() == 4
        assert rref.rpc_async(timeout=5).increase(by=2).wait() == 6
        result = rref.remote().increase(4)
        assert result.to_here(timeout=5) == 10
        assert rref.remote().itself().rpc_sync().increase() == 11
        assert rref.to_here().count == 11  # a copy each time
        with pytest.raises(Error, match="worker1"):
            rref.local_value()
        with pytest.raises(KeyError):
            rref.rpc_sync().fail()
        with pytest.raises(AttributeError, match="no_such"):
            rref.rpc_sync().no_such()
        with pytest.raises(KeyError):
            rref.remote().fail().to_here()

    group(body)


def test_results_of_operators(group):
    def body():
        rref = rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
        assert rref.to_here().tolist() == [2, 2]
        assert rref.rpc_sync().sum().item() == 4

    group(body)


def test_own_values(alone):
    counter = Counter(5)
    rref = rpc.RRef(counter)
    assert rref.is_owner()
    assert rref.local_value() is counter
    assert rref.to_here() is counter
    assert rref.owner() == rpc.get_worker_info()
    assert str(rref).startswith("OwnerRRef(GloballyUniqueId(created_on=0, local_id=")
    assert rref.rpc_sync().increase() == 6
    assert counter.count == 6
    tensor = torch.nn.Parameter(torch.ones(2))
    assert rpc.RRef(tensor).local_value() is tensor
    assert rpc.RRef(None).local_value() is None


def test_a_result_on_oneself_is_the_value_itself(alone):
    rref = rpc.remote("me", Counter, args=(1,))
    assert rref.is_owner()
    assert rref.local_value() is rref.to_here()
    assert rpc.rpc_sync("me", local_count, args=(rref,)) == 1
    tensor = rpc.remote("me", torch.add, args=(torch.ones(2), 1))
    assert tensor.local_value() is tensor.local_value()


def test_references_travel(group):
    def body():
        theirs = rpc.remote("worker1", Counter, args=(3,))
        assert rpc.rpc_sync("worker1", local_count, args=(theirs,)) == 3  # to its owner
        assert rpc.rpc_sync("worker2", fetched_count, args=(theirs,)) == 3  # to another user
        mine = rpc.RRef(Counter(7))
        assert rpc.rpc_sync("worker1", fetched_count, args=(mine,)) == 7  # from its owner
        assert rpc.rpc_sync("worker1", forward, args=("worker2", fetched_count, mine)) == 7
        assert rpc.rpc_sync("worker1", forward, args=("worker0", local_count, mine)) == 7
        back = rpc.rpc_sync("worker1", same, args=([{"x": (theirs, mine)}],))[0]["x"]
        assert back[0].to_here().count == 3
        assert back[1].local_value() is mine.local_value()
        got = rpc.rpc_sync("worker2", own_rref, args=(Counter(8),))
        assert got.owner_name() == "worker2"
        assert got.to_here().count == 8
        inside = rpc.rpc_sync("worker1", make_rrefs)
        assert inside["a"].to_here().count == 1
        assert inside["b"][0].local_value().count == 2
        of_rref = rpc.remote("worker1", own_rref, args=(Counter(9),))
        assert of_rref.to_here().to_here().count == 9
        in_object = rpc.rpc_sync("worker1", same, args=(Counter(theirs),))  # inside a pickle
        assert in_object.count.to_here().count == 3

    group(body, world_size=3)


def test_the_creating_calls_error_comes_at_each_use(group):
    def body():
        rref = rpc.remote("worker1", fail, args=("not made",))
        for _ in range(2):
            with pytest.raises(ValueError, match="not made"):
                rref.to_here()
        with pytest.raises(ValueError, match="not made"):
            rref.rpc_sync().anything()

    group(body)


def test_a_value_that_cannot_travel(group):
    def body():
        rref = rpc.remote("worker1", make_lock)
        with pytest.raises(TypeError, match="cannot pickle"):
            rref.to_here()
        assert rref.rpc_sync().locked() is False

    group(body)


def test_a_pending_value(group):
    def body():
        rref = rpc.remote("worker1", wait_for_release)
        with pytest.raises(Error, match="RPC ran for more than"):
            rref.to_here(timeout=0.05)
        waiting = rpc.rpc_async("worker1", local, args=(rref,))
        rpc.rpc_sync("worker1", release)
        assert rref.to_here() == 5
        assert waiting.wait() == 5

    group(body)


def local(rref):
    return rref.local_value()


def test_an_attribute_that_is_no_method_says_so_when_called_or_shown(alone):
    reference = rpc.RRef(Counter(1))
    with pytest.raises(TypeError, match=r"'count' of the Counter is of type int and no method.*takes the reference"):
        reference.rpc_sync().count()
    assert repr(reference.rpc_sync().count).startswith("<method 'count' of OwnerRRef(")


def test_pickling_outside_a_call(alone):
    rref = rpc.RRef(1)
    with pytest.raises(RuntimeError, match="Can not pickle rref in python pickler"):
        pickle.dumps([rref])


def test_use_after_shutdown(tmp_path, alone):
    rref = rpc.RRef([1])
    rpc.shutdown()
    with pytest.raises(Error, match="after deletion"):
        rref.to_here()


def test_references_compare_by_identity(alone):
    first = rpc.RRef(1)
    assert first != rpc.RRef(1)
    assert len({first, first}) == 1


def test_a_type_annotation():
    assert "RRef" in repr(rpc.RRef[int])


class Table(dict):
    def __call__(self, key):
        return self[key]


def test_a_proxy_that_is_called_calls_the_value(alone):
    reference = rpc.remote("me", torch.nn.Linear, args=(3, 2))
    assert reference.rpc_sync()(torch.ones(3)).shape == (2,)
    assert reference.rpc_async()(input=torch.ones(3)).wait().shape == (2,)
    assert reference.remote()(torch.ones(3)).to_here().shape == (2,)
    with pytest.raises(AttributeError, match="'dict' object has no attribute '__call__'"):
        rpc.remote("me", dict).rpc_sync()()


def test_a_proxy_runs_special_methods_that_are_named(alone):
    reference = rpc.remote("me", Table, args=({"a": 1},))
    assert reference.rpc_sync().__len__() == 1
    assert reference.rpc_sync().__getitem__("a") == 1
    assert reference.rpc_async().__call__("a").wait() == 1
    assert copy.copy(reference.rpc_sync()).get("a") == 1
