"""``python -m hostcore``: the same as the command ``hostcore``."""

from hostcore.cli import main

if __name__ == "__main__":
    main()
