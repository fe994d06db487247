"""Stands where `torch.distributed.nn` keeps what needs remote calls."""
