"""The bridge's errors, grouped by how the caller reacts to them.

```
BridgeError
+-- ConfigError         the configuration file or an option is wrong: correct it; the job has changed nothing
+-- StartupError        a precondition is not met (unreachable server, unknown table)
|   +-- AccessError         login or TLS handshake failed: credentials or certificates are wrong
+-- RetriableError      a server failed in a way that may pass: retry the same work
|   +-- TableMissingError   a captured table or its log does not exist at the moment
|   +-- NoGenerationError   a captured table has no streams yet: wait
+-- RefusedError        a server rejects a statement as invalid, for example because the table does not exist
+-- FencedError         another process owns this transactional id: stop at once
+-- UnpublishableError  one change can't be published as configured
|   +-- TooLargeError       its record is too large for Kafka
+-- LayoutError         another job has written a new lane layout: stop one of the two jobs
+-- DataLossError       changes are lost or may be lost: the table stops until a person decides
```

A message names the table, generation, stream group, window or record at fault, and says what to do. It never holds a
secret.
"""

from __future__ import annotations


class BridgeError(Exception):
    """Base class of all errors that the bridge raises on purpose."""


class ConfigError(BridgeError):
    """One or more settings are wrong.

    Attributes:
        problems: one text for each setting, with its place and a hint.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StartupError(BridgeError):
    """The job can't start: a server or table is missing or unreachable, or rejects the job."""


class AccessError(StartupError):
    """A login or a TLS handshake failed. It ends a start; a running job retries, because secrets rotate."""


class RetriableError(BridgeError):
    """A server failed in a way that may pass. The owner of the unit of work may retry it."""


class TableMissingError(RetriableError):
    """A captured table or its log does not exist at the moment. Somebody may create it soon, or again."""


class NoGenerationError(RetriableError):
    """A captured table has no streams yet, so its log holds no changes."""


class RefusedError(BridgeError):
    """A server rejects a statement as invalid, for example because a table or a column does not exist."""


class FencedError(BridgeError):
    """A newer owner of the transactional id exists. This process must not publish another record."""


class LayoutError(BridgeError):
    """A plan belongs to a lane layout that the table does not have."""


class UnpublishableError(BridgeError):
    """A change can't be encoded, or Kafka rejects its record."""


class TooLargeError(UnpublishableError):
    """A record exceeds Kafka's size limit. It is not part of the transaction, which continues without it."""


class DataLossError(BridgeError):
    """The log lacks changes that follow the progress: reading on would skip changes silently."""


def is_hopeless(kind: type[BaseException]) -> bool:
    """Return whether a retry is useless for an error class.

    FencedError allows a retry: the next attempt fences the other owner.
    """
    return issubclass(kind, BridgeError) and not issubclass(kind, (RetriableError, FencedError, AccessError))
