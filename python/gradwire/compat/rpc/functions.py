"""Functions that answer with a future."""

from gradwire.compat._refused import getter_of
from gradwire.functions import async_execution

__all__ = ["async_execution"]

__getattr__ = getter_of(__name__)
