"""Values that the whole bridge speaks in: times, streams, cursors and changes. Pure: no clock, no I/O."""
