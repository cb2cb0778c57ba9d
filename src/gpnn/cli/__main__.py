import sys

from gpnn.cli import main

sys.exit(main())
