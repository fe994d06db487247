"""Runs a program written to `torch.distributed.rpc` on gradwire, unchanged.

usage: python -m gradwire script.py [argument ...]
       python -m gradwire -m module [argument ...]

Processes that the program starts by multiprocessing, spawned or forked, run on gradwire as well.
"""

from gradwire._program import main

if __name__ == "__main__":
    main(__doc__)
