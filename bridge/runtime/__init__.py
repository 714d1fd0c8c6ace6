"""What every process needs: logging, signals, temporary files, retries, and a Java to run."""
