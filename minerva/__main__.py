"""`python -m minerva` is the command `minerva`."""

import sys

from minerva.cli.main import main

sys.exit(main())
