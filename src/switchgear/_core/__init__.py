"""The mechanism, as pure functions: no clock, lock, random numbers, I/O, logging or user code.

`step(policy, circuit, message, now_s)` is its entry point. Everything else in Switchgear creates
its three messages, or acts on its results.
"""
