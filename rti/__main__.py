"""`python -m rti`."""

import sys

from rti.cli import main

sys.exit(main())
