"""Guards for the SDKs and agent frameworks that programs use: one module for each, with a function `guard`."""
