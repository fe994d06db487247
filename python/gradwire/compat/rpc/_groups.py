"""How torch's workers join and leave a group: none of it is needed here."""

import logging

from gradwire.compat._refused import getter_of

logger = logging.getLogger("gradwire")

__getattr__ = getter_of(__name__)
