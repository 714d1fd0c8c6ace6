"""The job: starts, follows and stops one streaming query for each table."""
