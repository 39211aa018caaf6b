"""Accesses private parts of PyMySQL: its socket, its packets and the description of a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymysql


def close_now(driver: pymysql.Connection[Any]) -> None:
    """Closes the socket, without notifying the server."""
    driver._force_close()


def set_patience(driver: pymysql.Connection[Any], seconds: float | None) -> None:
    """Sets how long reading and writing may take."""
    driver._read_timeout = driver._write_timeout = seconds


def send_command(driver: Any, command: int, body: bytes) -> None:
    """Sends a command that PyMySQL has no method for."""
    driver._execute_command(command, body)


def read_packet(driver: Any) -> bytes:
    """Waits for the next packet."""
    data: bytes = driver._read_packet()._data
    return data


def fields_of(cursor: Any) -> Any:
    """Returns the columns of the result of a cursor, as the server describes them."""
    return cursor._result.fields


def result_of(driver: Any) -> Any:
    """Returns the result whose rows are still to come."""
    return driver._result


def reader_of(driver: Any) -> Callable[[int], bytes]:
    """Returns what reads bytes of the connection: those that are there, at least one and not more than requested."""
    read: Callable[[int], bytes] = driver._rfile.read1
    return read
