"""`python -m serving` is the command `longfold`."""

from serving.cli.main import main

if __name__ == "__main__":
    main()
