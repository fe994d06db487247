"""One side of a pair of workers for the benchmarks, for torch's RPC or gradwire's, driven by lines on standard input.

`add N`: N synchronous calls of torch.add on two elements; prints their median in microseconds.
"""

import argparse
import importlib
import statistics
import sys
import time

import torch


def load(package: str):
    """The rpc module and the options for TCP."""
    if package == "torch":
        rpc = importlib.import_module("torch.distributed.rpc")
        return rpc, lambda init: rpc.TensorPipeRpcBackendOptions(init_method=init, _transports=["uv"])
    rpc = importlib.import_module("gradwire.rpc")
    return rpc, lambda init: rpc.TensorPipeRpcBackendOptions(init_method=init)


def add(rpc, calls: int) -> float:
    a, b = torch.ones(2), torch.ones(2)
    args = (a, b)
    times = []
    for _ in range(calls):
        begin = time.perf_counter_ns()
        rpc.rpc_sync("server", torch.add, args=args)
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", choices=("torch", "gradwire"), required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--init", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rpc, options = load(args.package)
    name = ("client", "server")[args.rank]
    rpc.init_rpc(name, rank=args.rank, world_size=2, rpc_backend_options=options(args.init))
    if args.rank == 0:
        print("ready", flush=True)
        for line in sys.stdin:
            word, count = line.split()
            print({"add": add}[word](rpc, int(count)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
