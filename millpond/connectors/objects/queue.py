"""Reads a queue (SQS) that a bucket notifies of its objects.

A message says only that it is time to list; the listing decides. So a message that is lost, late or repeated does no
harm.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from millpond.packages import needed

log = logging.getLogger("millpond")
LONGEST = 1.0
"""Seconds that one request waits: closing may take as long."""


def notifications(values: Mapping[str, Any], interval: float, stop: threading.Event) -> Iterator[None]:
    """Yields when there are messages, which are deleted when their objects were read; and, to be sure, also once in an
    interval.
    """
    url, last, failing = values["queue"], time.monotonic(), False
    client = _client(values)
    while not stop.is_set():
        found: list[dict[str, Any]] = []
        try:
            answer = client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=int(LONGEST)
            )
            found, failing = answer.get("Messages", []), False
        except Exception as error:
            if not failing:
                log.warning(
                    "the queue %s cannot be read: %s; objects are listed every %g s", url, error, interval
                )
            failing = True
            stop.wait(min(interval, LONGEST))
        if found or time.monotonic() - last >= interval:
            last = time.monotonic()
            yield
        if found:
            receipts = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(found)]
            with suppress(Exception):  # it is delivered again then
                client.delete_message_batch(QueueUrl=url, Entries=receipts)


def _client(values: Mapping[str, Any]) -> Any:
    session = needed("botocore.session", "queues of s3:// sources", "s3").Session(profile=values["profile"])
    return session.create_client(
        "sqs",
        region_name=values["region"] or session.get_config_variable("region") or "us-east-1",
        endpoint_url=values["endpoint"],
        aws_access_key_id=values["key"],
        aws_secret_access_key=values["secret"],
        aws_session_token=values["token"],
    )
