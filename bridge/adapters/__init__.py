"""The only importers of client libraries. Each translates its library's errors into the bridge's in one module."""
