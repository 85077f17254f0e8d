"""`switchgear run`: an autonomous loop that stops when it stands still, and knows why."""
