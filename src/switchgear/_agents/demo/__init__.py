"""The built-in stand-in agent: no key, no network."""
