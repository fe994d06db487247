"""Where the workers of a group meet: the store that an `init_method` names."""

import os
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from torch._C._distributed_c10d import Store
from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.rendezvous import rendezvous

from gradwire import _C
from gradwire.errors import Error

_OPEN = -1  # a world_size in torch's rendezvous: of a group without one


class _Place(NamedTuple):
    host: str
    port: int
    rank: int
    world_size: int


def _tcp_place(init_method: str, rank: int, world_size: int | None) -> _Place | None:
    """Where to meet, and as what. None: not by TCP, or something is missing, which torch's rendezvous tells best."""
    url = urlsplit(init_method)
    if url.scheme == "env":
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        given = {name: os.environ[name.upper()] for name in ("rank", "world_size") if name.upper() in os.environ}
    elif url.scheme == "tcp":
        host, port, given = url.hostname, str(url.port or ""), {}
    else:
        return None
    given |= dict(parse_qsl(url.query))
    if rank != -1:
        given["rank"] = str(rank)
    if world_size is None:
        given.setdefault("world_size", str(_OPEN))
    elif world_size != -1:
        given["world_size"] = str(world_size)
    if not host or not port or "rank" not in given or "world_size" not in given:
        return None
    in_env = url.scheme == "env"
    return _Place(
        host,
        _number("MASTER_PORT" if in_env else f"the port of {init_method}", port),
        _number("RANK" if in_env else "rank", given["rank"]),
        _number("WORLD_SIZE" if in_env else "world_size", given["world_size"]),
    )


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {text!r}") from None


def _open_group_url(init_method: str, rank: int) -> str:
    """The method with what torch's rendezvous wants to read in it."""
    given = [] if rank == -1 else [f"rank={rank}"]
    if not init_method.startswith("env://") or "WORLD_SIZE" not in os.environ:
        given.append(f"world_size={_OPEN}")
    return init_method + ("&" if "?" in init_method else "?") + "&".join(given) if given else init_method


def open_store(init_method: str, rank: int, world_size: int | None, limit_s: float) -> tuple[Store, int, int]:
    """The store that the workers meet in, and this worker's place in the group."""
    place = _tcp_place(init_method, rank, world_size)
    if place is not None:
        _check(place.rank, place.world_size)
        return _C.open_tcp_store(place.host, place.port, place.rank, limit_s), place.rank, place.world_size
    _check_folder(init_method)
    limit = timedelta(seconds=limit_s) if limit_s > 0 else timedelta(days=365)
    try:
        if world_size is None:
            store, rank, size = next(rendezvous(_open_group_url(init_method, rank), timeout=limit))
        else:
            store, rank, size = next(rendezvous(init_method, rank, world_size, timeout=limit))
    except (DistNetworkError, DistStoreError) as error:
        raise Error(f"no store to meet at {init_method} within {limit_s:g} s: {error}", "Unreachable") from error
    _check(rank, size)
    return store, rank, size  # the store as it is: the core keeps to its own keys, where C++ workers look for them


def _check_folder(init_method: str) -> None:
    """torch's file store tries for ever to make a file that cannot be made."""
    url = urlsplit(init_method)
    folder = os.path.dirname(url.path)
    if url.scheme == "file" and not os.access(folder, os.W_OK):
        why = "is not writable" if os.path.isdir(folder) else "does not exist"
        raise Error(f"no store to meet at {init_method}: the folder {folder!r} {why}", "Unreachable")


def _check(rank: int, size: int) -> None:
    if size == 0:
        raise ValueError("world_size must be at least 1; leave it away for a group whose workers come and go")
    if rank < 0 or rank >= size > 0:  # before anybody is met: rank 0 would serve a store for it
        raise Error(f"rank {rank} is not in 0 .. {size - 1}, which a group of world_size {size} has", "Invalid")
