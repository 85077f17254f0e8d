"""The mechanism, pure: no clock, lock, random, I/O, logging or user code happens in here.

`step(policy, circuit, message, now_s)` is the whole of it; everything else in Switchgear turns
the outside world into its three messages, or its answers into effects.
"""
