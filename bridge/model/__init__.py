"""Values that all packages of the bridge share: times, streams, cursors, positions and changes. Pure."""
