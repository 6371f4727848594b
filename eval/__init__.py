"""Evaluation: robustness suites, reports and benchmarks."""
