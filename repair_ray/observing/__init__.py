"""What a run's actors and workers do with their time, the driver's heartbeat, and the metrics that both are told as."""
