"""Waiting for servers that are not there yet: the same attempt again and again, for a while, never in silence.

Pure apart from the clock, which is given. Whatever is not a `RetriableError` ends the waiting at once: wrong
credentials do not get better, and Ctrl-C or a signal handler's exception is not ours to hold back.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from bridge.errors import RetriableError, StartupError

T = TypeVar("T")

FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 5.0
_GROWTH: Final = 2.0
_LONGEST_NAME: Final = 20


def with_patience(
    what: str,
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
    """What `attempt` gives, as soon as it gives something.

    Tries go on until `patience_s` has passed, with pauses of 0.2 s that double up to 5 s, each shortened at random by
    up to a half so that many processes do not knock at once. There is always one try, and a last one at the end.

    Args:
        what: what is tried to be reached, as in "Kafka".
        address: where, as in "127.0.0.1:9092".
        attempt: raises RetriableError for what may pass.
        patience_s: how long to go on, in s; 0 is a single try.
        report: gets one line for each try that failed and is to be repeated.
        setting: where the address comes from, as in "kafka.bootstrap_servers"; None, `what` says so.
        clock: monotonic seconds.
        sleep: pauses for so many seconds; what it raises ends the waiting.
        chance: a number in [0, 1).

    Raises:
        StartupError: it did not come; the message names the address, its setting and how long it was tried.
    """
    named = f"{what} at {address}"
    began_s = clock()
    tries = 0
    delay_s = FIRST_DELAY_S
    while True:
        tries += 1
        try:
            return attempt()
        except RetriableError as error:
            waited_s = clock() - began_s
            left_s = patience_s - waited_s
            reason = _without_name(str(error), address)
            if left_s <= 0:
                tried = f"tried {tries} times in {waited_s:.1f} s" if tries > 1 else "tried once"
                # A reason that asks about the setting itself needs it no second time.
                see = f"; see {setting}" if setting is not None and setting not in reason else ""
                raise StartupError(f"{named} is not reachable ({tried}): {reason}{see}") from error
            pause_s = min(delay_s * (1 - chance() / 2), left_s)
            report(f"{named} is not reachable (try {tries}, next in {pause_s:.1f} s): {reason}")
        sleep(pause_s)
        delay_s = min(delay_s * _GROWTH, LONGEST_DELAY_S)


def _without_name(text: str, address: str) -> str:
    """A message without its beginning "<server> at <address>", which the line has already."""
    head, _, tail = text.partition(address)
    return tail.lstrip(":/ ") if tail and len(head) <= _LONGEST_NAME else text


def interruptible(call: Callable[[], T]) -> T:
    """What `call` gives, waited for so that a signal gets through at once.

    While a C library blocks, Python runs no signal handler; so `call` runs in a thread of its own, which is left behind
    (it does not keep the process alive) when the wait is interrupted.
    """
    return in_background(call, "interruptible").result()


def in_background(call: Callable[[], T], name: str) -> Future[T]:
    """What `call` will give, from a thread that does not keep the process alive; `name` is the thread's."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  # handed over whole to the thread that waits
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result
