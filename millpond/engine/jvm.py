"""Watches the Java process that Spark runs in: whether it runs, how it ended, and the release of what is left of it."""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import Any

from millpond.engine import internals
from millpond.errors import EngineLost

log = logging.getLogger("millpond")
_OUT_OF_MEMORY = 3
"""The exit code of the process when memory runs out."""
_LATEST = 2.0
"""Seconds after a broken connection within which the end of the process is noticed."""
_BROKEN = ("Answer from Java side is empty", "Error while sending or receiving", "does not exist in the JVM")


def _process() -> Any:
    """Returns the process that this one has started; None if there is none."""
    if "pyspark" not in sys.modules:
        return None
    return getattr(internals.gateway(), "proc", None)


def end() -> str | None:
    """Returns how the process ended; None while it runs, or before it was started."""
    process = _process()
    code = process.poll() if process is not None else None
    if code is None:
        return None
    if code == _OUT_OF_MEMORY:
        return "it ran out of memory"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with code {code}"


def lost(error: BaseException) -> EngineLost | None:
    """Returns the error to report if an exception came because the process is gone."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

    sure = isinstance(error, Py4JNetworkError) or (
        isinstance(error, Py4JError) and any(text in str(error) for text in _BROKEN)
    )
    maybe = isinstance(error, ConnectionError | EOFError)  # or that of something else
    if not sure and not maybe and not _is_of_spark(error):
        return None
    how, deadline = end(), time.monotonic() + _LATEST
    while (sure or maybe) and how is None and _process() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
        how = end()
    refused = isinstance(error, ConnectionRefusedError) and _is_of_spark(error)
    if how is None and not sure and not refused:
        return None
    return EngineLost(
        "Spark's Java process is gone" + (f": {how}" if how else ""),
        hint="it is started again when it is needed; MILLPOND_DRIVER_MEMORY gives it more memory than 4g",
    )


def _is_of_spark(error: BaseException) -> bool:
    """Returns whether an exception was raised by a call of Spark, whose Java process may be one before this one."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__", "").startswith(("py4j.", "pyspark.")):
            return True
        frame = frame.tb_next
    return False


def let_go() -> None:
    """Forgets a process that has ended, so that another one can be started."""
    log.warning("Spark's Java process is gone: %s; it is started again", end())
    context, gateway = internals.active_context(), internals.gateway()
    for step in (getattr(context, "stop", None), getattr(gateway, "shutdown", None)):
        try:
            if step is not None:
                step()
        except Exception:  # it queries the process, which is gone
            log.debug("nothing was there to stop", exc_info=True)
    if context is not None:
        try:
            context.stop()  # the first call only found that the process is gone
        except Exception:
            log.debug("nothing was there to stop", exc_info=True)
    internals.forget_process()
