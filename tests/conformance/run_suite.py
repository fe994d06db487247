"""Run PyTorch's own RPC test suite against torch or against a replacement.

    python run_suite.py --target torch --out baseline.tsv
    python run_suite.py --target gradwire.compat --compare baseline.tsv

Every test method runs in its own session, so that a stuck or crashed process
group is killed as a whole. `redirect.py` puts the replacement where the suite
expects torch; it runs at import, hence also in spawned ranks, which import this
file again as their main module.
"""

import argparse
import collections
import contextlib
import csv
import json
import multiprocessing
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

import redirect

redirect.install(os.environ.get("RPC_SUITE_TARGET", "torch"))

from torch.testing._internal.distributed import rpc_utils as suite  # noqa: E402

PLAIN = suite.GENERIC_TESTS + suite.TENSORPIPE_TESTS + suite.GENERIC_CUDA_TESTS + suite.TENSORPIPE_CUDA_TESTS
FAULTY = suite.FAULTY_AGENT_TESTS


def define_cases(faulty):
    """Make the test classes, under the suite's own names.

    The fault-injecting fixture registers a backend and so rebuilds the BackendType
    enum, which breaks tests of the other group: only its own processes import it.
    """
    if faulty:
        from torch.testing._internal.distributed.rpc.faulty_rpc_agent_test_fixture import (
            FaultyRpcAgentTestFixture as fixture,
        )
    else:
        from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
            TensorPipeRpcAgentTestFixture as fixture,
        )
    # ranks and pickled bound methods look the classes up in this module
    globals().update(suite.generate_tests("", fixture, FAULTY if faulty else PLAIN, __name__))


if __name__ == "__mp_main__":  # a spawned rank
    define_cases(os.environ["RPC_SUITE_FAULTY"] == "1")


Row = collections.namedtuple("Row", "suite test outcome seconds detail")
# A forked test starts in well under a second, a spawned one imports torch per rank.
# Only spawned ranks go through interpreter exit.
START = os.environ.get("RPC_SUITE_START", "fork")


def fork_ranks(self):
    self._start_processes(multiprocessing.get_context("fork").Process)


def check_ranks(self, fn, seconds, check=suite.SpawnHelper._check_return_codes):
    self.exit_codes = [process.exitcode for process in self.processes]
    check(self, fn, seconds)


if START == "fork":
    suite.SpawnHelper._spawn_processes = fork_ranks
suite.SpawnHelper._check_return_codes = check_ranks


def all_tests():
    load = unittest.TestLoader().getTestCaseNames
    return [(case.__name__, test) for case in PLAIN + FAULTY for test in load(case)]


def error_line(text):
    """The exception of the first rank that failed, else the last line."""
    block = text.split("and exception:", 1)[-1].split("\nProcess ", 1)[0]
    named = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Failure)\b.*)$", block, re.M)
    lines = named or [line for line in text.splitlines() if line.strip()] or [""]
    return lines[-1].strip()


def run_here(name, test):
    """Run one test in this process; the outcome and one line about it."""
    faulty = any(case.__name__ == name for case in FAULTY)
    os.environ["RPC_SUITE_FAULTY"] = str(int(faulty))
    define_cases(faulty)
    result = unittest.TestResult()
    case = globals()[name](test)
    case.run(result)
    bad = result.errors + result.failures
    if bad:
        return "fail", error_line(bad[0][1])
    if result.skipped:
        return "skip", result.skipped[0][1].splitlines()[0]
    codes = getattr(case, "exit_codes", [])
    if any(code < 0 for code in codes):  # the suite itself looks at rank 0 only
        return "crash", f"passed, but its ranks ended with {codes}"
    return "pass", ""


def child(name, test, answer, log):
    os.setsid()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    try:
        outcome = run_here(name, test)
    except BaseException as error:  # the fixture could not be imported, say
        outcome = "fail", f"{type(error).__name__}: {error}".splitlines()[0]
    answer.write_text(json.dumps(outcome))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def reap(running, limit, scratch):
    """Rows of the tests that ended; kills the groups that ran out of time."""
    rows = []
    for pid, (name, test, began) in list(running.items()):
        seconds = time.monotonic() - began
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done and seconds < limit:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # the test process and all its ranks
        if not done:
            os.waitpid(pid, 0)
        answer = scratch / f"{name}.{test}.json"
        if not done:
            outcome, detail = "timeout", f"no result within {limit:g} s"
        elif answer.exists():
            outcome, detail = json.loads(answer.read_text())
            if re.search(r"(terminated or timed out) after", detail):
                outcome = "timeout"
        else:
            outcome, detail = "fail", f"test process ended with wait status {status}"
        rows.append(Row(name, test, outcome, f"{seconds:.2f}", detail.replace("\t", " ")))
        del running[pid]
    return rows


# A race inside of torch may let these run out of time (README.md): such a test is run once more, and that is printed.
MAY_HANG_IN_TORCH = {"DdpComparisonTest", "DdpUnderDistAutogradTest"}


def run(tests, jobs, limit, logs, report):
    assert START == "spawn" or len(os.listdir("/proc/self/task")) == 1, (
        "importing the target started threads, which a fork would lose: use --start spawn"
    )
    queue, running, repeated = collections.deque(tests), {}, set()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        while queue or running:
            while queue and len(running) < jobs:
                name, test = queue.popleft()
                answer = scratch / f"{name}.{test}.json"
                began = time.monotonic()
                pid = os.fork()
                if not pid:
                    child(name, test, answer, pathlib.Path(logs or scratch) / f"{name}.{test}.log")
                running[pid] = name, test, began
            for row in reap(running, limit, scratch):
                if row.outcome == "timeout" and row.suite in MAY_HANG_IN_TORCH and row[:2] not in repeated:
                    print(f"again, after a timeout: {row.suite}.{row.test}", flush=True)
                    repeated.add(row[:2])
                    (scratch / f"{row.suite}.{row.test}.json").unlink(missing_ok=True)
                    queue.append(row[:2])
                else:
                    report(row)
            time.sleep(0.02)


def summary(rows, wall):
    table = collections.defaultdict(collections.Counter)
    spent = collections.Counter()
    for row, name in [(row, row.suite) for row in rows] + [(row, "all") for row in rows]:
        table[name][row.outcome] += 1
        spent[name] += float(row.seconds)
    outcomes = ["pass", "fail", "crash", "timeout", "skip"]
    print(f"{'suite':34}" + "".join(f"{outcome:>8}" for outcome in outcomes) + f"{'seconds':>9}")
    for name, n in table.items():
        print(f"{name:34}" + "".join(f"{n[outcome]:8}" for outcome in outcomes) + f"{spent[name]:9.0f}")
    print(f"wall time {wall:.0f} s")


def read_rows(path):
    with open(path, newline="") as file:
        lines = csv.reader((line for line in file if not line.startswith("#")), delimiter="\t")
        next(lines)
        return [Row(*line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="torch", help="torch, or an importable replacement package")
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork", help="how ranks are started")
    parser.add_argument("--select", default="", help="regular expression on Class.test")
    parser.add_argument("--exclude", nargs="*", default=[], help="TSVs whose first two columns name tests to leave out")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--limit", type=float, default=60, help="seconds per test")
    parser.add_argument("--out", help="TSV to write")
    parser.add_argument("--logs", help="folder for one log per test")
    parser.add_argument("--compare", help="TSV of an earlier run: exit 1 if a test that passed there does not here")
    parser.add_argument(
        "--quick", type=float, metavar="S", help="only tests that the --compare file shows passed within S seconds"
    )
    parser.add_argument("--list", action="store_true", help="print the selected tests and stop")
    args = parser.parse_args()

    wanted = {
        "RPC_SUITE_TARGET": args.target,
        "RPC_SUITE_START": args.start,
        "OPENBLAS_NUM_THREADS": "1",  # numpy would start threads before the fork
        # below ours, so that the suite can still print where its ranks hang
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(max(1, int(args.limit) - 10)),
    }
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})

    left_out = {
        tuple(line.split("\t")[:2]) for path in args.exclude for line in pathlib.Path(path).read_text().splitlines()
    }
    before = {row[:2]: row for row in read_rows(args.compare)} if args.compare else {}
    tests = [t for t in all_tests() if re.search(args.select, ".".join(t)) and t not in left_out]
    if args.quick:
        tests = [
            t for t in tests if t in before and before[t].outcome == "pass" and float(before[t].seconds) <= args.quick
        ]
    if args.list:
        print("\n".join(map(".".join, tests)))
        return 0
    if args.logs:
        os.makedirs(args.logs, exist_ok=True)

    rows, began = [], time.monotonic()

    def report(row):
        rows.append(row)
        print(
            f"{len(rows)}/{len(tests)} {row.outcome:7} {row.seconds:>6} {row.suite}.{row.test}  {row.detail[:120]}",
            flush=True,
        )

    run(tests, args.jobs, args.limit, args.logs, report)
    rows.sort(key=lambda row: tests.index((row.suite, row.test)))
    summary(rows, time.monotonic() - began)
    if args.out:
        with open(args.out, "w", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
            writer.writerow(Row._fields)
            writer.writerows(rows)
    if args.compare:
        worse = [r for r in rows if r[:2] in before and before[r[:2]].outcome == "pass" != r.outcome]
        for row in worse:
            print(f"was pass, now {row.outcome}: {row.suite}.{row.test}  {row.detail}")
        return bool(worse)
    return 0


if __name__ == "__main__":
    sys.exit(main())
