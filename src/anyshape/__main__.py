"""`python -m anyshape`."""

from anyshape.cli import main

if __name__ == "__main__":
    main()
