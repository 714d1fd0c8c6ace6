"""PySpark's side of the bridge: the streaming source, the transactional sink, and the job that joins them."""
