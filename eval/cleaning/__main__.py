"""`python -m eval.cleaning`."""

import sys

# Processes of the pool import this file again under another name, and must not import JAX with it.
if __name__ == "__main__":
    from eval.cleaning.main import main

    sys.exit(main())
