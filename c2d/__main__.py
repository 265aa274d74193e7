"""`python -m c2d` is the command `c2d`."""

from c2d.cli.main import entry

if __name__ == "__main__":
    entry()
