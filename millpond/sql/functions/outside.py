"""What reaches files, hosts or the JVM: nobody may call it."""

from __future__ import annotations

from millpond.sql.functions.base import Function
from millpond.sql.uris import TOPIC_CALL

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("from_protobuf", "A Protobuf message as a struct.", kind="outside", arity="2-4"),
    Function("java_method", "Calls a method of the JVM.", also=("reflect",), kind="outside", arity="2+"),
    Function(TOPIC_CALL, "A topic of Kafka as rows.", kind="outside", arity="1"),
    Function("python_worker_logs", "The logs of Python workers.", kind="outside", arity="any"),
    Function("to_protobuf", "A struct as a Protobuf message.", kind="outside", arity="2-4"),
    Function("try_reflect", "As reflect, but NULL where it fails.", kind="outside", arity="2+"),
)
# fmt: on
