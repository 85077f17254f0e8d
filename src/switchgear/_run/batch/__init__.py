"""Many tasks, one after the other or side by side: what may start, what is blocked, what is left."""
