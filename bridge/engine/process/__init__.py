"""What one Python process keeps from task to task: connections, encoders and lane publishers."""
