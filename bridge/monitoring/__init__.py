"""Observes the job: counters of its tasks, metrics, probes and the status page."""
