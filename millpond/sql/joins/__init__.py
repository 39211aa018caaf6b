"""Lowers joins of streams: what is stored of each side, for how long, and how the outer query continues."""

from millpond.sql.joins.lower import lower_joins
from millpond.sql.joins.model import JoinedStreams, Side, StreamJoin, all_inputs, joins_of
from millpond.sql.joins.warnings import join_warnings
from millpond.sql.joins.watermarks import window_watermark

__all__ = [
    "JoinedStreams",
    "Side",
    "StreamJoin",
    "all_inputs",
    "join_warnings",
    "joins_of",
    "lower_joins",
    "window_watermark",
]
