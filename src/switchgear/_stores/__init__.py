"""Where circuits are remembered. A store folds a message in one transaction; it never judges."""
