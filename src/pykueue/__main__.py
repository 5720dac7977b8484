"""`python -m pykueue`: the command line, wherever the package can be imported."""

from pykueue.cli.main import program

program("pykueue")
