"""How llama.cpp, at these versions, turns weights, cache and work space into bytes; it knows nothing of other engines."""

from brim.engines.llama_cpp.price import NEWEST_BUILD, price

__all__ = ["NEWEST_BUILD", "price"]
