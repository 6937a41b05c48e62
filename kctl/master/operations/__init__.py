"""Operations on the fleet: what may be requested, one at a time where they would contradict, each with an outcome."""

from kctl.master.operations.base import Caller, Operation, OperationType
from kctl.master.operations.context import Context
from kctl.master.operations.events import operation_events
from kctl.master.operations.operation_log import OperationLog
from kctl.master.operations.table import operation_types

__all__ = ["Caller", "Context", "Operation", "OperationLog", "OperationType", "operation_events", "operation_types"]
