"""llama.cpp: how this engine turns weights, cache and work space into bytes; it knows nothing of other engines."""
