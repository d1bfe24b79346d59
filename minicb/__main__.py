"""`python -m minicb` is the `minicb` command, for whoever has no scripts folder on the path."""

import sys

from minicb.cli import main

sys.exit(main())
