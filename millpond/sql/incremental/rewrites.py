"""Lists the rewrites by which subqueries and grouping sets become joins, groups and unions, which have operators."""

from __future__ import annotations

from millpond.sql.incremental.exists_as_count import exists_as_count
from millpond.sql.incremental.grouping_sets import grouping_sets
from millpond.sql.incremental.not_in import not_in
from millpond.sql.incremental.scalars import scalars
from millpond.sql.rewrite import Rewrite
from millpond.sql.rewrite.any_all import any_all
from millpond.sql.rewrite.groups_first import groups_before_windows, groups_first

AS_JOINS: tuple[Rewrite, ...] = (
    groups_first,
    groups_before_windows,
    any_all,
    not_in,
    exists_as_count,
    scalars,
    grouping_sets,
)
