"""The default timeout bounds how long a caller waits for one call, and nothing else (C2, M2)."""

import time

import torch

from gradwire import rpc

DEFAULT_TIMEOUT_S = 2
LONGER_S = 2.5 * DEFAULT_TIMEOUT_S


def call_on_and_on(to):
    """Calls until more time than the default timeout has passed; how often."""
    end = time.monotonic() + LONGER_S
    calls = 0
    while time.monotonic() < end:
        assert rpc.rpc_sync(to, torch.add, args=(torch.ones(1), calls)).item() == calls + 1
        calls += 1
    return calls


def count_here(calls):
    call_on_and_on.calls = calls


def trains(driver):
    rpc.rpc_sync(driver, count_here, args=(call_on_and_on(driver),))


def test_a_server_in_shutdown_serves_longer_than_the_timeout(group):
    def trainer():
        assert call_on_and_on("worker1") > 10  # worker1 has been in shutdown() from the start

    group(trainer, rpc_timeout=DEFAULT_TIMEOUT_S)


def test_a_trainer_runs_longer_than_the_timeout_of_the_call_that_started_it(group):
    """Its future, which nobody reads, has failed long before; it calls on, and shutdown waits for it."""

    def driver():
        rpc.rpc_async("worker1", trains, args=("worker0",))
        rpc.shutdown()
        assert call_on_and_on.calls > 10

    group(driver, rpc_timeout=DEFAULT_TIMEOUT_S)
