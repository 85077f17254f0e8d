"""Where circuits are saved. A store folds a message in one transaction; the core evaluates it."""
