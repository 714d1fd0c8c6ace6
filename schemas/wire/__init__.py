"""The schema registry's conventions: subject names, and the frame of a message."""
