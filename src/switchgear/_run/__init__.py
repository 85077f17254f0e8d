"""`switchgear run`: an autonomous loop that stops when it makes no progress, with the reason."""
