"""Exceptions that refuse to be looked at, changed, pickled or raised twice."""

import dataclasses
import gc
import threading
import weakref
from pathlib import Path

import pytest

from gradwire import RemoteError, futures, rpc


class NoText(Exception):
    def __str__(self):
        raise SystemExit(3)


class NoPickle(Exception):
    def __reduce__(self):
        raise SystemExit(4)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    number: int


class NoSecond(ValueError):
    def __new__(cls, *arguments, first=False):
        if not first:
            raise KeyError("only one of me")
        return super().__new__(cls, *arguments)

    def __init__(self, *arguments, first=False):
        super().__init__(*arguments)


def with_bad_notes():
    error = ValueError("notes")
    error.__notes__ = 5
    return error


ODD = {
    "no text": lambda: NoText("hidden"),
    "no pickle": lambda: NoPickle("x"),
    "frozen": lambda: Frozen(3),
    "surrogate": lambda: ValueError("a\ud800b"),
    "no second": lambda: NoSecond("x", first=True),
    "bad notes": with_bad_notes,
}


def fail(kind):
    raise ODD[kind]()


def add(x, y=1):
    return x + y


def wait_for_release():
    assert _release.wait(50)


_release = threading.Event()


@pytest.mark.parametrize("kind", ODD)
def test_c1_a_call_that_fails_oddly_ends_and_says_where(alone, kind, capfd):
    with pytest.raises(Exception) as failed:  # noqa: PT011
        rpc.rpc_sync("me", fail, args=(kind,), timeout=20)
    assert any("raised on worker 'me'" in note and "in fail" in note for note in failed.value.__notes__)
    error = ODD[kind]()
    if not isinstance(failed.value, RemoteError):
        assert type(failed.value) is type(error)
    else:
        assert failed.value.type_name.endswith(type(error).__qualname__)
    capfd.readouterr()


@pytest.mark.parametrize("kind", ODD)
def test_c1_callbacks_that_fail_oddly_fail_their_own_future(alone, kind, capfd):
    _release.clear()
    future = rpc.rpc_async("me", wait_for_release)
    future.add_done_callback(lambda _: fail(kind))
    following = future.then(lambda _: fail(kind))
    after = future.then(lambda _: 7)
    _release.set()
    assert after.wait() == 7
    with pytest.raises(Exception) as failed:  # noqa: PT011
        following.wait()
    assert isinstance(failed.value, RuntimeError)
    assert any("raised in a callback" in note for note in failed.value.__notes__)
    assert "Traceback" in capfd.readouterr().err


def test_fields_that_c_keeps_survive_a_callback(alone):
    failed = rpc.rpc_async("me", add, args=(1,)).then(lambda _: b"\xff".decode())
    with pytest.raises(UnicodeDecodeError) as error:
        failed.wait()
    assert (error.value.start, error.value.encoding, error.value.object) == (0, "utf-8", b"\xff")
    failed = rpc.rpc_async("me", add, args=(1,)).then(lambda _: Path("/nowhere/at/all").stat())
    with pytest.raises(FileNotFoundError) as error:
        failed.wait()
    assert error.value.errno == 2
    assert error.value.filename == "/nowhere/at/all"


class Thing:
    pass


def thing_of_a_failed_wait(make):
    """A weak reference to what was local where the wait failed."""
    thing = Thing()
    future = make()
    with pytest.raises(ValueError, match="x"):
        future.wait()
    return weakref.ref(thing)


def failed_by_itself():
    future = futures.Future()
    try:
        raise ValueError("x")
    except ValueError as error:
        future.set_exception(error)
    return future


def test_a_failed_future_keeps_no_frames_of_those_who_waited(alone):
    for make in (lambda: rpc.rpc_async("me", add, args=(1,)).then(lambda _: int("x")), failed_by_itself):
        thing = thing_of_a_failed_wait(make)
        gc.collect()
        assert thing() is None


def test_each_wait_raises_an_exception_of_its_own():
    future = futures.Future()
    given = ValueError("x")
    future.set_exception(given)
    raised = []
    for _ in range(2):
        with pytest.raises(ValueError, match="x") as error:
            future.wait()
        raised.append(error.value)
    assert raised[0] is not raised[1]
    assert given.__traceback__ is None


def test_an_exception_given_to_a_future_says_where_it_came_from():
    with pytest.raises(ValueError, match="x") as error:
        failed_by_itself().wait()
    assert any("in failed_by_itself" in note for note in error.value.__notes__)


# The module of a script is __main__ where it runs and __mp_main__ in what it spawns.
def test_c5_exceptions_of_a_script_that_spawns_arrive_as_themselves(scripts, tmp_path):
    text = """
    import multiprocessing
    import sys
    from gradwire import rpc

    class Broken(Exception): pass

    def fail(x): raise Broken(x)

    def caught(to):
        try:
            rpc.rpc_sync(to, fail, args=(3,))
        except Broken as error:
            return error.args

    def init(rank):
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{sys.argv[1]}")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)

    def spawned():
        init(1)
        rpc.shutdown()

    if __name__ == "__main__":
        process = multiprocessing.get_context("spawn").Process(target=spawned)
        process.start()
        init(0)
        assert caught("worker1") == (3,)
        assert rpc.rpc_sync("worker1", caught, args=("worker0",)) == (3,)
        rpc.shutdown()
        process.join()
        assert process.exitcode == 0
    """
    code, _, err = scripts.run(text, tmp_path / "store")
    assert code == 0, err
