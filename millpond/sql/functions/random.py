"""Values by chance, and by how rows are divided."""

from __future__ import annotations

from millpond.sql import measures
from millpond.sql.functions.base import Function
from millpond.sql.typing.coercion import DOUBLE, STRING
from millpond.sql.typing.rule import always

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("monotonically_increasing_id", "A number that is different in each row.",
        "monotonically_increasing_id() >= 0", kind="volatile", arity="0"),
    Function("rand", "A number by chance, from 0 to below 1; a seed can be given.", "rand() < 1",
        also=("random",), kind="volatile", arity="0-1", type=always(DOUBLE)),
    Function("randn", "A number by chance, of the normal distribution; a seed can be given.",
        "randn() IS NOT NULL", kind="volatile", arity="0-1", type=always(DOUBLE)),
    Function("randstr", "A text by chance, of so many characters.", "length(randstr(5)) = 5", kind="volatile",
        arity="1-2", grows=measures.spaces),
    Function("spark_partition_id", "The number of Spark's partition.", "spark_partition_id() >= 0",
        kind="volatile", arity="0"),
    Function("uniform", "A number by chance between two.", "uniform(1, 5) BETWEEN 1 AND 5", kind="volatile",
        arity="2-3"),
    Function("uuid", "A UUID by chance.", "length(uuid()) = 36", kind="volatile", arity="0-1",
        type=always(STRING)),
)
# fmt: on
