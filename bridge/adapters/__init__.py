"""The only places that know a client library; each maps its library's errors to ours in one table."""
