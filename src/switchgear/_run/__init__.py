"""`switchgear run`: an autonomous loop that stops when it makes no progress, and says why."""
