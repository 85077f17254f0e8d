"""Clocks, files, the login name, a lock that survives forks, and threads for an event loop."""
