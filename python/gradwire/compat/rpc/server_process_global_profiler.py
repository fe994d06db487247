"""Profiles of what a worker does for others, which gradwire does not make."""

from gradwire.compat._refused import getter_of

__getattr__ = getter_of(__name__)
