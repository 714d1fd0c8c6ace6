"""The log's side: its columns, its operations, and what its cells say."""
