"""`python -m symbreak` is the console script."""

from symbreak.cli import main

main()
