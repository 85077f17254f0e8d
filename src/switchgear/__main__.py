"""`python -m switchgear` is the command `switchgear`."""

from switchgear.cli import main

main(prog_name="switchgear")
