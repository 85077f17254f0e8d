"""`python -m switchgear` is the command `switchgear`."""

from switchgear._cli import main

main(prog_name="switchgear")
