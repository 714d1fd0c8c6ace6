"""The job: one streaming query for each table, started, watched and stopped."""
