"""Pure functions over text: redaction, fingerprints, globs, money."""
