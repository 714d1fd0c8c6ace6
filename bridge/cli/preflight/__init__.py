"""Checks servers and tables before the job writes anything: at its start, and for `validate --online`."""
