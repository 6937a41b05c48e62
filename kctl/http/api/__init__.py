"""`/api/v1/…`: reads are answered from the last snapshot without asking a process, except with `live=1`; operations
change the fleet."""

from kctl.http.api import status  # isort: skip  # the order of the reference
from kctl.http.api import partitions  # isort: skip
from kctl.http.api import history  # isort: skip
from kctl.http.api import lists  # isort: skip
from kctl.http.api.listing import router

__all__ = ["history", "lists", "partitions", "router", "status"]
