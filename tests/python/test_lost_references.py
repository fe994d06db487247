"""R3, A7: workers of an open group that are killed with references, calls and contexts in their hands."""

import multiprocessing
import os
import random
import time
import traceback

import pytest
import torch
from conftest import LIMIT_S, options

from gradwire import Error, autograd, rpc

fork = multiprocessing.get_context("fork")

DEATHS = int(os.environ.get("GRADWIRE_TEST_DEATHS", "16"))
# What a server may grow by from a third of the run on, if that is long.
GROWTH = 1.02
KEPT = 6  # references at each server

held = []
wrong = []


def make(number):
    return torch.full((1000,), float(number))


def scaled(x):
    return x * 2


def scaled_by_way_of(other, x):
    return rpc.rpc_sync(other, scaled, args=(x,)) * 3


def hold(rref, number, creator):
    """Keeps the reference for a while. What it names must be there as long as its owner is."""
    held.append((rref, number, creator))
    while len(held) > KEPT:
        use(*held.pop(random.randrange(len(held))))


def use(rref, number, creator):
    owner = rref.owner_name()
    try:
        value = rref.to_here(timeout=LIMIT_S)
        if value[0].item() != number:
            wrong.append(f"{value[0].item()} instead of {number}")
    except Error as error:
        lost = owner not in ("a", "b") and error.code in ("Disconnected", "Unreachable", "UnknownWorker")
        if not lost and "never made" not in str(error):
            wrong.append(f"of {owner}: {error.code}: {error}")


def memory_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def serve(name, rank, store, pipe):
    """A worker that stays; answers the test's questions."""
    try:
        torch.set_num_threads(1)
        rpc.init_rpc(name, rank=rank, rpc_backend_options=options(store))
        pipe.send(name)
        while (question := pipe.recv()) != "leave":
            if question == "clear":
                while held:
                    use(*held.pop())
            pipe.send((rpc._default.worker.counts(), memory_kb(), list(wrong)))
        rpc.shutdown()
        pipe.send("left")
    except BaseException:
        pipe.send(traceback.format_exc())


def come_and_work(name, rank, store, others, seed):
    """A worker that creates, shares and drops references, and runs backward passes, until it is killed."""
    try:
        torch.set_num_threads(1)
        random.seed(seed)
        rpc.init_rpc(name, rank=rank, rpc_backend_options=options(store))
        mine = []
        for number in range(10**6):
            known = [info.name for info in rpc.get_worker_infos()]
            peers = [other for other in others if other in known]
            kind = random.randrange(4)
            try:
                if kind == 0:
                    mine.append((rpc.remote(random.choice(peers), make, args=(number,)), number, name))
                elif kind == 1:
                    mine.append((rpc.RRef(make(number)), number, name))
                elif kind == 2 and mine:
                    given = mine.pop(random.randrange(len(mine)))
                    for peer in random.sample(peers, random.randint(1, len(peers))):
                        rpc.rpc_async(peer, hold, args=given)
                else:
                    with autograd.context() as context:
                        x = torch.ones(10, requires_grad=True)
                        there, beyond = random.sample(peers, 2)
                        y = rpc.rpc_sync(there, scaled_by_way_of, args=(beyond, x))
                        autograd.backward(context, [y.sum()])
            except (Error, RuntimeError):  # the other client has been killed
                pass
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class Server:
    def __init__(self, name, rank, store):
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(target=serve, args=(name, rank, store, theirs))
        self.process.start()
        theirs.close()
        self.receive(name)

    def receive(self, expected=None):
        assert self.pipe.poll(LIMIT_S)
        answer = self.pipe.recv()
        assert expected is None or answer == expected, answer
        return answer

    def ask(self, question):
        self.pipe.send(question)
        return self.receive()

    def leave(self):
        self.pipe.send("leave")
        self.receive("left")
        self.process.join(LIMIT_S)


@pytest.fixture
def servers(tmp_path):
    made = []
    for rank, name in enumerate(("a", "b")):
        made.append(Server(name, rank, tmp_path / "store"))
    yield made
    for server in made:
        server.process.kill()


def test_r3_workers_that_are_killed_leave_nothing_behind(servers, tmp_path):
    chance = random.Random(7)
    names = ["client0", "client1"]
    clients = [None, None]

    def start(which, seed):
        others = ["a", "b", names[1 - which]]
        arguments = (names[which], 2 + which, tmp_path / "store", others, seed)
        clients[which] = fork.Process(target=come_and_work, args=arguments)
        clients[which].start()

    memory = []
    for which in range(2):
        start(which, which)
    for death in range(DEATHS):
        time.sleep(chance.uniform(0.3, 0.8))
        which = chance.randrange(2)
        assert clients[which].is_alive()
        clients[which].kill()
        clients[which].join()
        start(which, 2 + death)
        if death % 10 == 9:
            memory.append([server.ask("memory")[1] for server in servers])
            print(death + 1, *memory[-1], flush=True)
    for client in clients:
        client.kill()
        client.join()
    end = time.monotonic() + LIMIT_S
    answers = []
    while time.monotonic() < end:  # what the last ones have sent may be handled yet, and is kept and cleared then
        answers = [server.ask("clear") for server in servers]
        if not any(any(counts.values()) for counts, _, _ in answers):
            break
        time.sleep(0.05)
    for counts, _, wrong in answers:
        assert not wrong
        assert not any(counts.values()), counts
    if len(memory) >= 6:
        for first, last in zip(memory[len(memory) // 3], memory[-1], strict=True):
            assert last <= first * GROWTH, memory
    for server in servers:
        server.leave()
