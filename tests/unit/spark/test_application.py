from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.spark.driver import ApplicationEnded, OwnDriver


def session(*, is_stopped: bool) -> Any:
    context = SimpleNamespace(isStopped=lambda: is_stopped)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://one:7077", _jsc=SimpleNamespace(sc=lambda: context))
    )


def test_a_worker_whose_application_the_cluster_has_ended_ends_for_another_one() -> None:
    driver = OwnDriver(SimpleNamespace())  # type: ignore[arg-type]
    driver.session = session(is_stopped=False)
    driver.check()

    driver.session = session(is_stopped=True)
    with pytest.raises(ApplicationEnded, match="the cluster spark://one:7077 has ended this application"):
        driver.check()
