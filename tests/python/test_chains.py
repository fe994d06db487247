"""Calls inside calls and callbacks after callbacks, more than there are threads (C2, C3, C6)."""

import torch

from gradwire import rpc


def descend(depth, here, there):
    """How many calls were made below this one, each the other worker's."""
    if depth == 0:
        return 0
    return 1 + rpc.rpc_sync(there, descend, args=(depth - 1, there, here))


def add_one(future):
    return future.wait() + 1


def echo(value):
    return value


def test_nested_calls_are_deeper_than_the_pool(group):
    def body():
        assert rpc.rpc_sync("worker1", descend, args=(200, "worker1", "worker0")) == 200

    group(body, num_worker_threads=1)


def test_many_nested_chains_at_once(group):
    def body():
        chains = [rpc.rpc_async("worker1", descend, args=(8, "worker1", "worker0")) for _ in range(64)]
        assert torch.futures.wait_all(chains) == [8] * 64

    group(body, num_worker_threads=4)


def test_ten_thousand_chained_callbacks(group):
    def body():
        future = rpc.rpc_async("worker1", echo, args=(0,))
        for _ in range(10_000):
            future = future.then(add_one)
        assert future.wait() == 10_000

    group(body)


def test_ten_thousand_callbacks_are_chained_before_the_first_runs(group):
    def body():
        first = future = rpc.Future()
        for _ in range(10_000):
            future = future.then(add_one)
        first.set_result(0)
        assert future.wait() == 10_000

    group(body)


def test_a_timeout_races_its_reply(group):
    """Whichever is first: the right value or TimedOut, and the worker goes on."""

    def body():
        late = 0
        for base in range(0, 10_000, 50):
            futures = [
                rpc.rpc_async("worker1", echo, args=(number,), timeout=0.001) for number in range(base, base + 50)
            ]
            for number, future in enumerate(futures, base):
                try:
                    assert future.wait() == number
                except rpc.Error as error:
                    if error.code != "TimedOut":
                        raise
                    late += 1
        print(f"{late} of 10,000 were late")
        assert late < 10_000
        assert rpc.rpc_sync("worker1", echo, args=("alive",)) == "alive"

    group(body)
