"""Defaults that transformers gives to fields which a config.json leaves out, and the other spellings of fields; generated, never edited.

Source: transformers 5.24.0, models/*/configuration_*.py (fields of the config classes that brim reads, `attribute_map`).
Made by `tests/evidence/shape_defaults.py`; a default of None is left out.
"""

# fmt: off
DEFAULTS: "dict[str, dict[str, object]]" = {
        "gemma": {"attention_bias": False, "head_dim": 256, "hidden_size": 3072, "intermediate_size": 24576, "max_position_embeddings": 8192,
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 16, "tie_word_embeddings": True, "vocab_size": 256000},
        "gemma2": {"attention_bias": False, "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 8192,
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size":
        256000},
        "gemma3_text": {"attention_bias": False, "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size":
        262208},
        "gpt2": {"hidden_size": 768, "max_position_embeddings": 1024, "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True,
        "vocab_size": 50257},
        "llama": {"attention_bias": False, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "mlp_bias": False,
        "num_attention_heads": 32, "num_hidden_layers": 32, "tie_word_embeddings": False, "vocab_size": 32000},
        "mistral": {"hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 32000},
        "phi3": {"hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "tie_word_embeddings": False, "vocab_size": 32064},
        "qwen2": {"hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "sliding_window": 4096, "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size":
        151936},
        "qwen3": {"attention_bias": False, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 32768,
        "max_window_layers": 28, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "sliding_window": 4096,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936},
}
SPELLINGS: "dict[str, dict[str, str]]" = {
    "gpt2": {"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
}
