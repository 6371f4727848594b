"""Training: `python -m train.main`."""
