"""`switchgear proxy`: a reverse proxy for model APIs that guards the agents behind it."""
