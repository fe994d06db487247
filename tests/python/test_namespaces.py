"""Machines of their own (network namespaces): hosts that fall silent, and pairs that cannot reach each other (M1)."""

import os
import subprocess

import pytest
from test_process import START, ended

WAITS = (
    START
    + """
    from gradwire import Error
    release = threading.Event()

    def hold():
        release.wait()

    def failure(call):
        try:
            call()
        except Error as error:
            return f"{error.code}: {error}"
        return "no error"

    def wait_for(other):
        waiting = rpc.rpc_async(f"worker{other}", hold, timeout=0)
        print("ready", flush=True)
        print(failure(waiting.wait), flush=True)
        release.set()

    init(heartbeat_limit=2.0)
"""
)


class Network:
    """A bridge, and a namespace for each of a few machines."""

    def __init__(self, machines):
        self.made = []
        hub = self._add("hub")
        self._run("-n", hub, "link", "add", "bridge", "type", "bridge")
        self._run("-n", hub, "link", "set", "bridge", "up")
        for i in range(machines):
            name = self._add(str(i))
            self._run("link", "add", "eth", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", hub)
            self._run("-n", hub, "link", "set", f"port{i}", "master", "bridge", "up")
            self._run("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth")
            self._run("-n", name, "link", "set", "eth", "up")
            self._run("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def _run(*command):
        return subprocess.run(["ip", *command], check=True, capture_output=True, text=True)

    @staticmethod
    def _name(what):
        return f"gradwire-{os.getpid()}-{what}"

    @staticmethod
    def address(machine):
        return f"10.77.0.{machine + 1}"

    def _add(self, what):
        self._run("netns", "add", self._name(what))
        self.made.append(self._name(what))
        return self.made[-1]

    def prefix(self, machine):
        return ["ip", "netns", "exec", self._name(str(machine))]

    def silence(self, machine):
        """What it sends, and what is sent to it, is lost without a word."""
        self._run("-n", self._name("hub"), "link", "set", f"port{machine}", "nomaster")

    def part(self, machines, state="on"):
        """None of these reaches another of these; the rest reach all."""
        for machine in machines:
            port = ("link", "set", f"port{machine}", "type", "bridge_slave", "isolated", state)
            self._run("-n", self._name("hub"), *port)

    def close(self):
        for name in self.made:
            self._run("netns", "del", name)


@pytest.fixture
def network():
    made = []

    def make(machines):
        try:
            made.append(Network(machines))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        return made[-1]

    yield make
    for network in made:
        network.close()


def start(scripts, network, text, world, store):
    processes = [
        scripts.start(text, rank, world, store, prefix=network.prefix(rank), GRADWIRE_HOST=network.address(rank))
        for rank in range(world)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    return processes


@pytest.mark.parametrize(("world", "victim"), [(3, 0), (3, 2), (2, 1)])
def test_a_silent_host_is_lost_and_finds_itself_cut_off(scripts, network, tmp_path, world, victim):
    text = (
        WAITS
        + f"""
    wait_for({0 if victim else 1} if rank == {victim} else {victim})
    print(failure(rpc.shutdown))
    """
    )
    machines = network(world)
    processes = start(scripts, machines, text, world, tmp_path / "store")
    machines.silence(victim)
    for rank, process in enumerate(processes):
        code, out, err = ended(process)
        told = f"worker 'worker{victim}' was declared lost by the group in epoch 2 (silent for "
        if rank == victim:
            told = f"worker 'worker{victim}' is cut off from the group: reached 1 of {world} workers"
        lines = out.splitlines()
        assert code == 0, (rank, out, err)
        assert lines[0].startswith("Disconnected: "), (rank, out, err)
        assert told in lines[0], (rank, out, err)
        assert lines[1:] == ["no error"], (rank, out, err)


def test_a_pair_that_is_parted_fails_alone_and_works_again(scripts, network, tmp_path):
    text = (
        WAITS
        + """
    if rank == 0:
        print("ready", flush=True)
    else:
        wait_for(3 - rank)
        assert rpc.rpc_sync("worker0", same, args=(rank,)) == rank
        both = ["worker1", "worker2"]
        assert "cannot be reached" in failure(lambda: rpc.all_gather(rank, both))
        sys.stdin.readline()
        while failure(lambda: rpc.rpc_sync(f"worker{3 - rank}", same, args=(7,))) != "no error":
            pass  # until they are connected again
    rpc.shutdown()
    """
    )
    machines = network(3)
    processes = start(scripts, machines, text, 3, tmp_path / "store")
    machines.part([1, 2])
    for rank in (1, 2):
        line = processes[rank].stdout.readline()
        assert line.startswith(f"Unreachable: worker 'worker{3 - rank}' cannot be reached from here"), line
    machines.part([1, 2], "off")
    for process in processes[1:]:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert ended(process) == (0, "", "")
