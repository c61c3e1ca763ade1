"""`python -m agents.cli`: the command line, where the script `privstream` is not on PATH."""

from agents.cli import main

if __name__ == "__main__":
    main()
