"""Death and frost at random moments (M1): whoever waits for a worker that is killed or stopped is told, and can end.

One moment of each kind in an ordinary run; `GRADWIRE_MOMENTS=50 pytest -s` tries 50 of each and prints how long waits
took. A failure names its seed.
"""

import faulthandler
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback

import pytest
import torch
from conftest import LIMIT_S, options

from gradwire import Error, autograd, rpc

WORLD = 4
MOMENTS = int(os.environ.get("GRADWIRE_MOMENTS", "1"))
FIRST_SEED = int(os.environ.get("GRADWIRE_FIRST_SEED", "0"))
HEARTBEAT_LIMIT_S = 2.0
MEETING_S = 8.0
SPAN_S = {"load": 1.0, "meet": 0.15, "leave": 0.03}
# What a busy machine may add to the second that a death takes to be known, and to the two of a shutdown after it.
GRACE_S = 30.0

RELEASE = threading.Event()
PARAMETER = torch.ones(100, requires_grad=True)


def hold():
    RELEASE.wait()


def same(x):
    return x


def make(n):
    return torch.ones(n)


def use(shared):
    return shared.to_here().sum()


def scale(x, to):
    """Over the parameters of two workers."""
    y = x * PARAMETER
    return rpc.rpc_sync(to[0], scale, args=(y, to[1:])) if to else y


def call_all(others):
    futures = [rpc.rpc_async(other, same, args=(torch.ones(n),)) for other in others for n in (10, 200_000)]
    for future in futures:
        future.wait()
    for other in others:
        rpc.rpc_sync(other, same, args=(other,))


def share_all(others):
    for owner in others:
        shared = rpc.remote(owner, make, args=(50,))
        uses = [rpc.rpc_async(user, use, args=(shared,)) for user in others]
        assert [use.wait().item() for use in uses] == [50.0] * len(others)
        shared.to_here()


def backward_all(others):
    with autograd.context() as context:
        loss = sum(scale(PARAMETER, others[i:] + others[:i]).sum() for i in range(len(others)))
        autograd.backward(context, [loss])
        assert PARAMETER in autograd.get_gradients(context)


LOADS = (call_all, share_all, backward_all)


class Rank:
    """What a worker does, and what it says about it: (what, when, text)."""

    def __init__(self, pipe, rank, victim, store, given):
        self.pipe = pipe
        self.lock = threading.Lock()
        self.rank = rank
        self.victim = victim
        self.store = store
        self.given = given
        self.others = [f"worker{other}" for other in range(WORLD) if other != rank]

    def say(self, what, text=""):
        with self.lock:
            self.pipe.send((what, time.monotonic(), text))

    def init(self, store, world):
        rank = self.rank if world > 1 else 0
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options(store, **self.given))

    def until_lost(self, work):
        try:
            while True:
                work()
        except Exception as error:
            self.say("lost", f"{type(error).__name__}: {error}")

    def load(self):
        """Waits of all kinds, each until it fails."""
        other = self.others[0] if self.rank == self.victim else f"worker{self.victim}"
        held = rpc.rpc_async(other, hold, timeout=0)
        works = [held.wait] + [lambda load=load: load(self.others) for load in LOADS]
        threads = [threading.Thread(target=self.until_lost, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        self.say("ready")
        for thread in threads:
            thread.join()
        RELEASE.set()
        if self.rank != self.victim:
            self.say("told")
            self.pipe.recv()
            for other in self.others:
                if other != f"worker{self.victim}":
                    assert rpc.rpc_sync(other, same, args=(2,)) == 2
        else:
            self.until_lost(lambda: rpc.rpc_sync(other, same, args=(1,)))
        self.end()

    def meet(self):
        """It may die before the group is whole, or after."""
        self.say("ready")
        self.pipe.recv()
        try:
            self.init(self.store, WORLD)
        except Error as error:
            self.say("refused", str(error))
        else:
            self.end()

    def leave(self):
        self.init(self.store, WORLD)
        share_all(self.others)
        self.say("ready")
        self.pipe.recv()
        self.end()

    def end(self):
        try:
            rpc.shutdown()
            self.say("down")
        except Error as error:
            self.say("down", str(error))

    def run(self, kind):
        torch.set_num_threads(1)
        faulthandler.register(signal.SIGUSR1)
        try:
            if kind == "load":
                self.init(self.store, WORLD)
                share_all(self.others)
                rpc.barrier()
            getattr(self, kind)()
            if self.rank == self.victim:
                self.init(f"{self.store}.again", 1)
                assert rpc.rpc_sync("worker0", same, args=(3,)) == 3
                rpc.shutdown()
            self.say("over")
        except BaseException:
            self.say("fault", traceback.format_exc())


class Group:
    """Forked ranks, one of which is to die."""

    def __init__(self, kind, victim, store, **given):
        fork = multiprocessing.get_context("fork")
        self.victim = victim
        self.pipes = []
        self.processes = []
        self.said = [[] for _ in range(WORLD)]
        for rank in range(WORLD):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=Rank(theirs, rank, victim, store, given).run, args=(kind,))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            if process.is_alive() and error[0] is not None:
                os.kill(process.pid, signal.SIGCONT)
                os.kill(process.pid, signal.SIGUSR1)
                process.join(2)
            if process.is_alive():
                process.kill()
            process.join()
            pipe.close()

    def listen(self, rank, until):
        """Hears a rank until it has said that it is so far."""
        end = time.monotonic() + LIMIT_S
        while True:
            left = end - time.monotonic()
            assert self.pipes[rank].poll(max(left, 0)), f"worker{rank} hangs before {until}: {self.said[rank]}"
            try:
                said = self.pipes[rank].recv()
            except EOFError:
                pytest.fail(f"worker{rank} died before {until}: {self.said[rank]}")
            self.said[rank].append(said)
            assert said[0] != "fault", f"worker{rank}: {said[2]}"
            if said[0] == until:
                return

    def ready(self):
        for rank in range(WORLD):
            self.listen(rank, "ready")

    def go(self, ranks):
        for rank in ranks:
            self.pipes[rank].send("go")
        return time.monotonic()

    @property
    def living(self):
        return [rank for rank in range(WORLD) if rank != self.victim]

    def send(self, number):
        os.kill(self.processes[self.victim].pid, number)
        return time.monotonic()

    def heard(self, rank, what):
        return [(when, text) for said, when, text in self.said[rank] if said == what]


def note(times, what, seconds, limit):
    times[what] = max(times.get(what, 0.0), seconds)
    assert seconds < limit + GRACE_S, (what, seconds)


def wait_until_told(group, since, limit, times):
    """All waits of the living end with the name of the victim."""
    for rank in group.living:
        group.listen(rank, "told")
        for when, text in group.heard(rank, "lost"):
            assert f"worker{group.victim}" in text, f"worker{rank} was told: {text}"
            note(times, "told", when - since, limit)


def wait_until_down(group, since, limit, times):
    """The living can end, or could not begin."""
    for rank in group.living:
        group.listen(rank, "over")
        ends = group.heard(rank, "down") + group.heard(rank, "refused")
        assert ends, rank
        assert not any(text for _, text in group.heard(rank, "down")), (rank, ends)
        note(times, "down", max(when for when, _ in ends) - since, limit)


def moments(kind, signals):
    """(seed, victim, seconds): when a worker is to die, from when all are ready on."""
    for seed in range(FIRST_SEED, FIRST_SEED + MOMENTS):
        chance = random.Random(f"{kind} {signals} {seed}")
        yield seed, chance.randrange(WORLD), chance.random() * SPAN_S[kind]


@pytest.mark.parametrize("kind", ["load", "meet", "leave"])
def test_a_worker_killed_at_a_random_moment(tmp_path, kind):
    times = {}
    for seed, victim, moment_s in moments(kind, "kill"):
        print(f"{kind}: seed {seed}, worker{victim} is killed after {moment_s:.3f} s", flush=True)
        with Group(kind, victim, tmp_path / f"{kind}{seed}", rpc_timeout=MEETING_S) as group:
            group.ready()
            if kind != "load":
                group.go(range(WORLD))
            time.sleep(moment_s)
            since = group.send(signal.SIGKILL)
            if kind == "load":
                wait_until_told(group, since, 1.0, times)
                since = group.go(group.living)
            # Who meets waits for a rank that has not come as long as init_rpc is told to.
            wait_until_down(group, since, MEETING_S if kind == "meet" else 2.0, times)
    print(f"{kind}, killed: {MOMENTS} times; {times}")


@pytest.mark.parametrize("kind", ["load", "meet", "leave"])
def test_a_worker_stopped_at_a_random_moment(tmp_path, kind):
    times = {}
    for seed, victim, moment_s in moments(kind, "stop"):
        print(f"{kind}: seed {seed}, worker{victim} is stopped after {moment_s:.3f} s", flush=True)
        given = {"rpc_timeout": MEETING_S, "heartbeat_limit": HEARTBEAT_LIMIT_S}
        with Group(kind, victim, tmp_path / f"{kind}{seed}", **given) as group:
            group.ready()
            if kind != "load":
                group.go(range(WORLD))
            time.sleep(moment_s)
            since = group.send(signal.SIGSTOP)
            if kind == "load":
                wait_until_told(group, since, HEARTBEAT_LIMIT_S + 2, times)
                since = group.send(signal.SIGCONT)
                group.listen(victim, "over")  # it has ended, and has begun again
                for when, text in group.heard(victim, "lost"):
                    assert f"worker{victim}' was declared lost by the group in epoch 2 (silent for " in text, text
                    note(times, "learnt", when - since, 1.0)
                # A shutdown that begins just when this worker learns of its loss is one more wait that ends with that.
                down = group.heard(victim, "down")[0][1]
                assert down == "" or f"worker{victim}' was declared lost by the group" in down, down
                since = group.go(group.living)
            wait_until_down(group, since, MEETING_S if kind == "meet" else HEARTBEAT_LIMIT_S + 2, times)
            if kind != "load":
                group.send(signal.SIGCONT)
                group.listen(victim, "over")
    print(f"{kind}, stopped: {MOMENTS} times; {times}")
