"""Which room draws which `model_type`; the only list of names in the house, and it names families, never models."""

FAMILIES: dict[str, tuple[str, str]] = {
    "gemma": ("dense", "gemma"),
    "gemma2": ("dense", "gemma2"),
    "gemma3_text": ("dense", "gemma3"),
    "gpt2": ("dense", "gpt2"),
    "llama": ("dense", "llama"),
    "mistral": ("dense", "mistral"),
    "phi3": ("dense", "phi3"),
    "qwen2": ("dense", "qwen2"),
    "qwen3": ("dense", "qwen3"),
}
