"""Spark's JVM: how it is started and configured."""
