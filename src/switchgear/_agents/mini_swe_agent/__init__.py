"""mini-swe-agent: command line and trajectories."""
