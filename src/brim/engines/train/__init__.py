"""The engine `train`: how one PyTorch training step turns weights, states, activations and buffers into bytes, moment by moment; pure, and it never imports torch."""

from brim.engines.train.plan import VERSION, price, survey

__all__ = ["VERSION", "price", "survey"]
