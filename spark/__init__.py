"""PySpark's side of the bridge: the streaming source, whose tasks publish what they read, and the job around it."""
