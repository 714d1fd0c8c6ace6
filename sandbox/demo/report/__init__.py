"""The demo's report."""
