"""Lists letters that DuckDB, which maps one to one, converts differently from Unicode's full mapping: as RE2
classes.
"""

from __future__ import annotations

IN_UPPER = (
    r"[\x{DF}\x{149}\x{1F0}\x{390}\x{3B0}\x{587}\x{1E96}-\x{1E9A}\x{1F50}\x{1F52}\x{1F54}\x{1F56}\x{1F80}-\x{1FAF}"
    r"\x{1FB2}-\x{1FB4}\x{1FB6}\x{1FB7}\x{1FBC}\x{1FC2}-\x{1FC4}\x{1FC6}\x{1FC7}\x{1FCC}\x{1FD2}\x{1FD3}\x{1FD6}\x{1FD7}"
    r"\x{1FE2}-\x{1FE4}\x{1FE6}\x{1FE7}\x{1FF2}-\x{1FF4}\x{1FF6}\x{1FF7}\x{1FFC}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}]"
)
"""Letters that become several in capitals."""
IN_LOWER = r"[\x{130}\x{3A3}]"
"""A dotted I, which becomes two letters, and a sigma, which is different at the end of a word."""
