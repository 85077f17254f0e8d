"""The TEST button: attacks on one's own guards, to see that each of them fires."""
