"""Explanations of single predictions: Grad-CAM and layer-wise relevance propagation."""

from eval.explain.gradcam import grad_cam
from eval.explain.lrp import Rules, relevance
from eval.explain.rules import Rule, epsilon, gamma

__all__ = ["Rule", "Rules", "epsilon", "gamma", "grad_cam", "relevance"]
