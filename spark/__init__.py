"""The PySpark side of the bridge: the streaming source, whose tasks publish the changes, and the job around it.

Only this package imports PySpark and py4j. It translates between Spark and `bridge.engine`, and decides nothing.
"""
