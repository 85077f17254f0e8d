"""Guards agents from inside: hook events become messages to circuits, verdicts become rulings."""
