"""The routes of `/api/v1/…`. In a fleet on one host, reads return the last snapshot unless they have `live=1`. In a
fleet on several hosts, most reads also ask the other masters."""

from kctl.http.api import status  # isort: skip  # the order of the reference
from kctl.http.api import partitions  # isort: skip
from kctl.http.api import history  # isort: skip
from kctl.http.api import lists  # isort: skip
from kctl.http.api.listing import router

__all__ = ["history", "lists", "partitions", "router", "status"]
