"""Functions that answer with a future."""

from gradwire.functions import async_execution

__all__ = ["async_execution"]
