"""What one Python process keeps from task to task: connections, codecs, and lane publishers.

PySpark runs many tasks in one worker process, one after the other. Connecting, or opening a transactional id, for each
task would cost more than the task's own work. After an exception that leaves an object in an unknown state, the task
drops it, and the next task opens another one.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.engine.ports import RunningTask
from bridge.engine.process.kafka_cache import KafkaCache
from bridge.engine.process.scylla_cache import ScyllaCache


class ProcessCache:
    """The caches of one process; each process has exactly one.

    Attributes:
        scylla: connections to clusters, and what was learned over them.
        kafka: lane publishers, and clients of Kafka and of the schema registry.
    """

    def __init__(
        self,
        running_task: Callable[[], RunningTask | None],
        *,
        scylla: ScyllaCache | None = None,
        kafka: KafkaCache | None = None,
    ) -> None:
        """Prepare; this connects to nothing.

        Args:
            running_task: the task that this process runs at the moment; None outside tasks.
            scylla: another cache than the ordinary one.
            kafka: another cache than the ordinary one.
        """
        self._running_task = running_task
        self.scylla = scylla or ScyllaCache()
        self.kafka = kafka or KafkaCache(running_task)

    @property
    def is_retry(self) -> bool:
        """Whether Spark has tried the running task before; False outside tasks."""
        task = self._running_task()
        return task is not None and task.attempt_number > 0
