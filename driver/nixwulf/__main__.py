"""`python -m nixwulf`: the command line, where its program is not on PATH."""

from nixwulf.cli.main import main

if __name__ == "__main__":
    main()
