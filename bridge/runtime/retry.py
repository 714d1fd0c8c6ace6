"""Retries with growing pauses, for servers that may not be up yet.

Only a `RetriableError` is retried. Everything else is raised at once: wrong credentials stay wrong, and the exception
of a signal handler must get through.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from bridge.errors import RetriableError, StartupError

T = TypeVar("T")

_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 5.0
_GROWTH: Final = 2.0
_LONGEST_SERVER_NAME: Final = 20


def retry_until_reachable(
    server: str,
    address: str,
    attempt: Callable[[], T],
    *,
    patience_s: float,
    report: Callable[[str], None],
    setting: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    chance: Callable[[], float] = random.random,
) -> T:
    """Repeat an attempt until it succeeds or the time is up.

    The pauses start at 0.2 s and double up to 5 s. Each is shortened at random by up to one half, so that many
    processes do not retry at the same time. There is at least one attempt, and one when the time is up.

    Args:
        server: the server's name, as in "Kafka".
        address: its address, as in "127.0.0.1:9092".
        attempt: raises RetriableError if another attempt may succeed.
        patience_s: how long to go on, in s; 0 is a single attempt.
        report: receives one line for each failed attempt that will be repeated.
        setting: the setting that holds the address, as in "kafka.bootstrap_servers"; None if `server` names it.
        clock: monotonic seconds.
        sleep: pauses for that many seconds; an exception from it ends the retries.
        chance: a random number in [0, 1).

    Returns:
        The result of the attempt that succeeded.

    Raises:
        StartupError: no attempt succeeded; the message names the address, its setting and the time spent.
    """
    named, began_s = f"{server} at {address}", clock()
    tries, delay_s = 0, _FIRST_DELAY_S
    while True:
        tries += 1
        try:
            return attempt()
        except RetriableError as error:
            reason, waited_s = _strip_server(str(error), address), clock() - began_s
            left_s = patience_s - waited_s
            if left_s <= 0:
                tried = f"tried {tries} times in {waited_s:.1f} s" if tries > 1 else "tried once"
                raise StartupError(f"{named} is not reachable ({tried}): {_with_setting(reason, setting)}") from error
            pause_s = min(delay_s * (1 - chance() / 2), left_s)
            report(f"{named} is not reachable (try {tries}, next in {pause_s:.1f} s): {reason}")
        sleep(pause_s)
        delay_s = min(delay_s * _GROWTH, _LONGEST_DELAY_S)


def _with_setting(reason: str, setting: str | None) -> str:
    """The reason with the setting to check, unless the reason names the setting already."""
    return reason if setting is None or setting in reason else f"{reason}; see {setting}"


def _strip_server(message: str, address: str) -> str:
    """The message without "<server> at <address>" at its beginning, which the reported line has already."""
    head, _, tail = message.partition(address)
    return tail.lstrip(":/ ") if tail and len(head) <= _LONGEST_SERVER_NAME else message
