"""One module a subcommand of `minicb`; the table that lists them is in `minicb/cli.py`."""
