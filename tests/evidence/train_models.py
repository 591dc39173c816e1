"""Configurations of published models by name, as their own config.json gives them (public facts: widths, layers, heads, vocabulary), for the tables of published figures."""


def _llama(hidden, inner, layers, heads, kv, vocabulary, *, tied=False, kind="llama", **more):
    return {
        "model_type": kind, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "vocab_size": vocabulary, "tie_word_embeddings": tied, **more,
    }  # fmt: skip


MODELS = {
    "llama-2-7b": _llama(4096, 11008, 32, 32, 32, 32000),
    "llama-2-13b": _llama(5120, 13824, 40, 40, 40, 32000),
    "llama-65b": _llama(8192, 22016, 80, 64, 64, 32000),
    "llama-2-70b": _llama(8192, 28672, 80, 64, 8, 32000),
    "llama-3-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    "llama-3-70b": _llama(8192, 28672, 80, 64, 8, 128256),
    "llama-3-405b": _llama(16384, 53248, 126, 128, 8, 128256),
    "llama-3.2-1b": _llama(2048, 8192, 16, 32, 8, 128256, tied=True),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 8, 128256, tied=True, head_dim=128),
    "tiny-llama": _llama(2048, 5632, 22, 32, 4, 32000),
    "mistral-7b": _llama(4096, 14336, 32, 32, 8, 32000, kind="mistral", sliding_window=None),
    "devstral-24b": _llama(5120, 32768, 40, 32, 8, 131072, kind="mistral", head_dim=128, sliding_window=None),
    "qwen3-4b": _llama(2560, 9728, 36, 32, 8, 151936, tied=True, kind="qwen3", head_dim=128),
    "gemma-2b": _llama(2048, 16384, 18, 8, 1, 256000, tied=True, kind="gemma", head_dim=256),
    "gemma-7b": _llama(3072, 24576, 28, 16, 16, 256000, tied=True, kind="gemma", head_dim=256),
    "gemma2-2b": _llama(2304, 9216, 26, 8, 4, 256000, tied=True, kind="gemma2", head_dim=256),
    "gemma2-9b": _llama(3584, 14336, 42, 16, 8, 256000, tied=True, kind="gemma2", head_dim=256),
    "phi-1.5": _llama(2048, 8192, 24, 32, 32, 51200, kind="phi"),
    "phi-2": _llama(2560, 10240, 32, 32, 32, 51200, kind="phi"),
    "phi-3-mini": _llama(3072, 8192, 32, 32, 32, 32064, kind="phi3", pad_token_id=0),
    "stablelm-alpha-3b": {
        "model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 16, "num_attention_heads": 32, "vocab_size": 50688,
    },
    "bloomz-7b1": {"model_type": "bloom", "hidden_size": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880},
    "t5-3b": {
        "model_type": "t5", "d_model": 1024, "d_ff": 16384, "d_kv": 128, "num_heads": 32, "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128,
        "feed_forward_proj": "relu", "tie_word_embeddings": True, "is_encoder_decoder": True,
    },
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "vocab_size": 50257},
}  # fmt: skip
