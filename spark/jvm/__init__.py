"""Starts and configures Spark's JVM."""
