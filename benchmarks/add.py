"""How many times faster than PyTorch's own RPC a call of torch.add on two elements is, both over TCP, side by side.

All pairs of workers live at once; rounds go round robin, so that whatever else the machine does meets all of them. Each
round's figure is the median of its calls, and each ratio compares figures of one round.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


class Pair:
    """Two processes, the first of which runs what run() says."""

    def __init__(self, command: list[str], init_form: str, store: str):
        init = f"file://{store}"
        self.processes = [
            subprocess.Popen(
                [part.format(rank=rank, init=init) for part in [*command, *init_form.split()]],
                stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(2)
        ]
        self.read()

    def read(self) -> str:
        line = self.processes[0].stdout.readline()
        if not line:
            raise SystemExit(f"{self.processes[0].args} ended early")
        return line

    def run(self, what: str) -> float:
        self.processes[0].stdin.write(what + "\n")
        self.processes[0].stdin.flush()
        return float(self.read())

    def close(self) -> None:
        self.processes[0].stdin.close()
        for process in self.processes:
            process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpp", default="build/release/benchmarks/bench_pair", help="the C++ pair's program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2000)
    args = parser.parse_args()
    python = [sys.executable, str(HERE / "pair.py"), "--package"]
    flags = "--rank {rank} --init {init}"
    with tempfile.TemporaryDirectory() as folder:
        pairs = {
            "torch": Pair([*python, "torch"], flags, folder + "/torch"),
            "python": Pair([*python, "gradwire"], flags, folder + "/python"),
            "cpp": Pair([args.cpp], "{rank} {init}", folder + "/cpp"),
        }
        for pair in pairs.values():
            pair.run("add 500")
        rounds = []
        for _ in range(args.rounds):
            rounds.append({name: pair.run(f"add {args.calls}") for name, pair in pairs.items()})
            print("  ".join(f"{name} {p50:.1f} us" for name, p50 in rounds[-1].items()), flush=True)
        for pair in pairs.values():
            pair.close()
    for name in ("python", "cpp"):
        ratios = [one["torch"] / one[name] for one in rounds]
        print(f"add_{name}: {statistics.median(ratios):.1f}x (worst round {min(ratios):.1f}x)")


if __name__ == "__main__":
    main()
