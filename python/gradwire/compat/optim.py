"""Stands where `torch.distributed.optim` keeps DistributedOptimizer."""

from gradwire.optim import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
