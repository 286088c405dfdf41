"""`python -m specsim`: the same as the `specsim` command."""

from specsim.commands import main

if __name__ == "__main__":
    main()
