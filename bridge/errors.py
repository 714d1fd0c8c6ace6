"""The bridge's errors, grouped by what the caller does about them.

```
BridgeError
+-- ConfigError         the configuration file or an option is wrong: mend it, nothing was touched
+-- StartupError        a precondition does not hold (unreachable server, unknown table)
|   +-- AccessError         a server does not let us in, or we don't trust it: credentials or certificates are wrong
+-- RetriableError      a server did not answer as hoped: the same work may be tried again
|   +-- TableMissingError   a captured table, or its log, is not there now
|   +-- NoGenerationError   the cluster has no streams yet: nothing can be read, and nothing is wrong
+-- RefusedError        the server finds a statement invalid, as one on a table that is no more
+-- FencedError         another process has taken this transactional id over: stop at once
+-- PoisonError         one record can't be carried as configured
+-- LayoutError         another job has laid the table's lanes anew: one of the two must go
+-- DataLossError       changes are gone, or may be: stop the table until someone decides
```

Messages name the table, generation, stream set, window or record at fault, and what to do. They never hold secrets.
"""

from __future__ import annotations


class BridgeError(Exception):
    """Root of every error that the bridge raises on purpose."""


class ConfigError(BridgeError):
    """One or more settings are wrong; `problems` names each of them with its place and a hint."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StartupError(BridgeError):
    """The job can't start: something it needs is missing, unreachable or refuses us."""


class AccessError(StartupError):
    """A login or a TLS handshake failed. It ends a start; a running job tries again, because secrets get rotated."""


class RetriableError(BridgeError):
    """A server failed in a way that may pass; whoever owns the unit of work may try it again."""


class TableMissingError(RetriableError):
    """A captured table or its log does not exist now; it may be in the making, or made anew."""


class NoGenerationError(RetriableError):
    """A captured table has no streams yet, so that nothing can have been written to its log either."""


class RefusedError(BridgeError):
    """The server finds a statement invalid: a table or a column that it names does not exist, for one."""


class FencedError(BridgeError):
    """A newer owner of the same transactional id exists; this one must not write another record."""


class LayoutError(BridgeError):
    """What was planned belongs to a lane layout that is no longer the table's."""


class PoisonError(BridgeError):
    """A record that can't be encoded, or that Kafka refuses."""


class TooLargeError(PoisonError):
    """A record over the limit, refused before it became part of the transaction: that goes on without it."""


class DataLossError(BridgeError):
    """Progress and log no longer meet: going on would skip changes in silence."""


def is_hopeless(kind: type[BaseException]) -> bool:
    """Whether trying again can't mend an error of this class; a fenced job's next attempt fences back."""
    return issubclass(kind, BridgeError) and not issubclass(kind, (RetriableError, FencedError, AccessError))
