"""What the job tells about itself: figures from its tasks, metrics, probes, and the status page."""
