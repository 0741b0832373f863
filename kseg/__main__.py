"""`python -m kseg` is the same program as the `kseg` script."""

from kseg.cli.main import main

if __name__ == "__main__":
    main()
