"""Guards agents through their hooks: events become messages to circuits, verdicts become rulings."""
