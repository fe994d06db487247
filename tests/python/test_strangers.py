"""What strangers send to a live worker's port ends their own connections, in time, and nothing else."""

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

import torch

from gradwire import rpc

HANDSHAKE_LIMIT_S = 5
MAGIC = 0x31445247
VERSION = 2
MESSAGES = (3, 4, 5, 7, 8)


def socket_inodes():
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes


def listening_port():
    """The one of this process."""
    inodes = socket_inodes()
    ports = []
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.append(int(fields[1].rsplit(":", 1)[1], 16))
    (port,) = ports
    return port


def frame(kind, body, version=VERSION, body_size=None, bulk_size=0, number=0, acknowledged=0):
    """docs/wire.md, "Frames"."""
    size = len(body) if body_size is None else body_size
    return struct.pack("<BBHIQQQ", kind, version, 0, size, bulk_size, number, acknowledged) + body


def hello(version=VERSION, rank=0, to_rank=1, name=b"worker0", nonce=bytes(32)):
    """docs/wire.md, "Handshake". The incarnations are no worker's."""
    return b"".join(
        (
            struct.pack("<IH", MAGIC, version),
            struct.pack("<IIH", 1, rank, len(name)) + name,
            struct.pack("<II", 1, to_rank) + nonce,
        )
    )


def proof(number=1, mac=bytes(32)):
    return struct.pack("<Q", number) + mac


def resume(taken=0, count=0):
    return struct.pack("<QI", taken, count)


def refuse(code=6, number=0, text=b"ended"):
    return struct.pack("<BQH", code, number, len(text)) + text


def noise():
    random = torch.Generator().manual_seed(1)
    for size in (1, 7, 31, 32, 33, 500, 20_000, 300_000):
        yield bytes(torch.randint(256, (size,), generator=random).tolist())


def strange():
    yield b""  # connects and says nothing
    yield from noise()
    yield b"GET / HTTP/1.1\r\nHost: worker1\r\n\r\n"
    yield frame(1, hello())  # a right form, another life of the worker
    yield frame(1, hello()) + frame(10, proof()) + frame(11, resume()) + frame(3, b"x", number=1)
    yield frame(1, hello(version=9))
    yield frame(1, hello(to_rank=7))
    yield frame(1, hello(name=b"nobody"))
    yield frame(1, hello(nonce=b"short"))
    yield frame(1, b"")
    yield frame(1, hello(), version=1)
    yield frame(1, hello(), version=3)
    yield frame(1, hello(), acknowledged=1)
    for kind in (0, *range(2, 17), 255):  # no Hello first
        yield frame(kind, hello(), number=int(kind in MESSAGES))
        yield frame(kind, b"")
    yield frame(10, proof()) + frame(11, resume())
    yield frame(11, resume(count=2**32 - 1))
    yield frame(12, refuse())  # a refusal where nothing was asked
    yield frame(12, refuse(code=1, number=2**62))
    yield frame(1, hello(), body_size=2**32 - 1)  # oversized
    yield frame(1, hello(), body_size=4097)
    yield frame(1, hello(), bulk_size=2**63)
    yield frame(3, b"", body_size=2**31, bulk_size=2**40, number=2**63)
    for cut in (1, 16, 31, 32, 40):  # truncated
        yield frame(1, hello())[:cut]


def is_closed(connection, end):
    """Whether the other side closes it before `end`."""
    try:
        while True:
            connection.settimeout(max(0.01, end - time.monotonic()))
            if not connection.recv(65536):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True


def test_strangers(group):
    def body():
        tensor = torch.arange(100_000)
        assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(tensor, 1)), tensor + 1)
        port = rpc.rpc_sync("worker1", listening_port)
        sockets = rpc.rpc_sync("worker1", socket_inodes)
        pid = rpc.rpc_sync("worker1", os.getpid)
        for hangs_up in (False, True):
            connections = []
            for data in strange():
                connection = socket.create_connection(("127.0.0.1", port), timeout=20)
                with contextlib.suppress(OSError):  # closed by the other side
                    connection.sendall(data)
                    if hangs_up:
                        connection.shutdown(socket.SHUT_WR)
                connections.append((data, connection))
                assert rpc.rpc_sync("worker1", max, args=(1, 2)) == 2
            end = time.monotonic() + (5 if hangs_up else HANDSHAKE_LIMIT_S + 5)
            for data, connection in connections:
                assert is_closed(connection, end), data[:80]
                connection.close()
            assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(tensor, 1)), tensor + 1)
        assert rpc.rpc_sync("worker1", os.getpid) == pid
        assert rpc.rpc_sync("worker1", socket_inodes) == sockets  # nothing is left of them

    group(body)


# Many that say nothing cost a descriptor each for a while, and delay nobody.
def test_many_strangers(group):
    def body():
        port = rpc.rpc_sync("worker1", listening_port)
        connections = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(300)]
        for _ in range(100):
            assert rpc.rpc_sync("worker1", max, args=(1, 2)) == 2
        end = time.monotonic() + HANDSHAKE_LIMIT_S + 5
        assert all(is_closed(connection, end) for connection in connections)

    group(body)
