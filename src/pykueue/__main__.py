"""`python -m pykueue`: the command line, wherever the package can be imported."""

from pykueue.cli.main import main

main(prog_name="pykueue")
