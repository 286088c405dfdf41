"""Run specsim from a checkout without installing it: `python cli.py predict qwen3.6-27b`.

The same application as the installed `specsim` command; `python cli.py --help` lists the commands.
"""

from specsim.commands import main

if __name__ == "__main__":
    main()
