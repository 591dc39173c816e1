"""Configs to hold brim's shapes against: published models as their files say, and a generator of small odd ones for every family."""

import random

# Published configs, as far as they bear on shapes (values as in the model's config.json on the hub). The parameter count is what the oracle counts.
PUBLISHED: "dict[str, dict]" = {
    "llama-2-7b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False},
    "llama-3.1-8b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False},
    "llama-3.1-70b": {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False},
    "llama-3.2-1b": {"model_type": "llama", "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": True},
    "smollm2-135m": {"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True},
    "mistral-7b-v0.1": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096, "max_position_embeddings": 32768, "tie_word_embeddings": False},
    "mistral-nemo-12b": {"model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072, "sliding_window": None, "max_position_embeddings": 131072, "tie_word_embeddings": False},
    "mixtral-8x7b": {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "tie_word_embeddings": False},
    "mixtral-8x22b": {"model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56, "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 32768, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "tie_word_embeddings": False},
    "qwen2.5-0.5b": {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False, "tie_word_embeddings": True},
    "qwen2.5-7b": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": False, "tie_word_embeddings": False},
    "qwen3-8b": {"model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936, "max_window_layers": 36, "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": False},
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False},
    "qwen1.5-moe-a2.7b": {"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936, "num_experts": 60, "num_experts_per_tok": 4, "decoder_sparse_step": 1, "use_sliding_window": False, "tie_word_embeddings": False},
    "qwen3-next-80b-a3b": {"model_type": "qwen3_next", "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936, "num_experts": 512, "num_experts_per_tok": 10, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "tie_word_embeddings": False},
    "gemma-7b": {"model_type": "gemma", "head_dim": 256, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 256000},
    "gemma-2-9b": {"model_type": "gemma2", "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 256000, "sliding_window": 4096},
    "gemma-3-1b": {"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 262144, "sliding_window": 512, "sliding_window_pattern": 6},
    "gemma-3-12b": {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window": 1024}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False}, "mm_tokens_per_image": 256},
    "phi-3-mini-4k": {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "sliding_window": 2047, "tie_word_embeddings": False},
    "phi-4": {"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100352, "sliding_window": None, "tie_word_embeddings": False},
    "phi-3.5-moe": {"model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32064, "num_local_experts": 16, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True, "sliding_window": 131072, "tie_word_embeddings": False},
    "phi-2": {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 51200, "qk_layernorm": False, "tie_word_embeddings": False},
    "deepseek-v2-lite": {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "tie_word_embeddings": False},
    "deepseek-v3": {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    "kimi-k2": {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "tie_word_embeddings": False},
    "gpt-oss-20b": {"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True, "tie_word_embeddings": False},
    "glm-4-9b-0414": {"model_type": "glm4", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 151552, "attention_bias": True, "tie_word_embeddings": False},
    "glm-4.5-air": {"model_type": "glm4_moe", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "vocab_size": 151552, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "use_qk_norm": False, "attention_bias": True, "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    "command-r-35b": {"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 256000, "use_qk_norm": False},
    "command-r7b": {"model_type": "cohere2", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 256000, "sliding_window": 4096, "sliding_window_pattern": 4},
    "olmo-2-7b": {"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "tie_word_embeddings": False},
    "olmoe-1b-7b": {"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304, "num_experts": 64, "num_experts_per_tok": 8, "tie_word_embeddings": False},
    "granite-3.1-8b": {"model_type": "granite", "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49155, "tie_word_embeddings": True},
    "granite-4.0-h-tiny": {"model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 512, "shared_intermediate_size": 1024, "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352, "num_local_experts": 64, "num_experts_per_tok": 6, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1, "layer_types": ["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)], "tie_word_embeddings": True},
    "falcon-7b": {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": False},
    "falcon-40b": {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8, "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": True},
    "falcon-h1-0.5b": {"model_type": "falcon_h1", "head_dim": 64, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 32784, "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_rms_norm": False, "tie_word_embeddings": False},
    "jamba-mini": {"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16, "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "tie_word_embeddings": False},
    "mamba-2.8b": {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280, "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 160, "use_conv_bias": True, "use_bias": False, "tie_word_embeddings": True},
    "mamba2-codestral-7b": {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768, "state_size": 128, "conv_kernel": 4, "expand": 2, "num_heads": 128, "head_dim": 64, "n_groups": 8, "use_conv_bias": True, "use_bias": False, "tie_word_embeddings": False},
    "lfm2-1.2b": {"model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3, "conv_bias": False, "full_attn_idxs": [2, 5, 8, 10, 12, 14]},
    "nemotron-nano-9b-v2": {"model_type": "nemotron_h", "head_dim": 128, "hidden_size": 4480, "intermediate_size": 15680, "num_hidden_layers": 56, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "tie_word_embeddings": False},
    "minimax-text-01": {"model_type": "minimax", "head_dim": 128, "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 200064, "num_local_experts": 32, "num_experts_per_tok": 2, "layer_types": ["full_attention" if (i + 1) % 8 == 0 else "linear_attention" for i in range(80)], "tie_word_embeddings": False},
    "llama-4-scout": {"model_type": "llama4_text", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 202048, "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "tie_word_embeddings": False},
    "exaone-4-32b": {"model_type": "exaone4", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 102400, "sliding_window": 4096, "sliding_window_pattern": 4, "tie_word_embeddings": False},
    "starcoder2-3b": {"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152, "sliding_window": 4096, "use_bias": True, "tie_word_embeddings": True},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
    "pythia-1.4b": {"model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 50304, "tie_word_embeddings": False},
    "stablelm-2-1.6b": {"model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "use_qkv_bias": True, "tie_word_embeddings": False},
    "smollm3-3b": {"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256, "tie_word_embeddings": True},
    "seed-oss-36b": {"model_type": "seed_oss", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8, "vocab_size": 155136, "attention_bias": True, "attention_out_bias": False, "tie_word_embeddings": False},
    "ernie-4.5-0.3b": {"model_type": "ernie4_5", "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 103424, "use_bias": False, "tie_word_embeddings": True},
    "bert-base": {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "all-minilm-l6": {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "bge-m3": {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002, "max_position_embeddings": 8194, "type_vocab_size": 1},
    "modernbert-large": {"model_type": "modernbert", "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28, "num_attention_heads": 16, "vocab_size": 50368, "global_attn_every_n_layers": 3, "local_attention": 128},
    "t5-base": {"model_type": "t5", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12, "vocab_size": 32128, "feed_forward_proj": "relu"},
    "whisper-large-v3": {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51866},
    "qwen2.5-vl-7b": {"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False, "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_chans": 3}},
    "llava-1.5-7b": {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}, "vision_feature_layer": -2},
    "mistral-small-3.1-24b": {"model_type": "mistral3", "tie_word_embeddings": False, "text_config": {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072, "sliding_window": None}, "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "image_size": 1540, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}, "spatial_merge_size": 2, "multimodal_projector_bias": False},
    "smolvlm-500m": {"model_type": "smolvlm", "scale_factor": 4, "tie_word_embeddings": False, "text_config": {"model_type": "llama", "head_dim": 64, "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5, "vocab_size": 49280}, "vision_config": {"model_type": "smolvlm_vision", "hidden_size": 768, "image_size": 512, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12, "patch_size": 16}},
}  # fmt: skip

# What transformers needs named where its own defaults cannot be built.
NEEDED: "dict[str, dict]" = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "hunyuan_v1_dense": {"num_key_value_heads": 8, "head_dim": 64},
    "hunyuan_v1_moe": {"num_key_value_heads": 8, "head_dim": 64, "num_experts": 4, "moe_topk": 2},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "aya_vision": {"vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_attention_heads": 16}},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
}

# Field → values that a small odd config may take; only fields that a family's config class has are used.
CHOICES: "dict[str, list]" = {
    "vocab_size": [131, 256],
    "tie_word_embeddings": [True, False],
    "hidden_size": [64, 128],
    "d_model": [64, 128],
    "dim": [64, 128],
    "n_embd": [64, 128],
    "num_hidden_layers": [3, 4, 5, 7],
    "n_layer": [2, 3],
    "n_layers": [2, 3],
    "num_layers": [2, 4],
    "num_decoder_layers": [2, 3],
    "encoder_layers": [2, 3],
    "decoder_layers": [2, 3],
    "num_attention_heads": [4, 8],
    "n_head": [4, 8],
    "n_heads": [4, 8],
    "num_heads": [4, 8],
    "encoder_attention_heads": [4],
    "decoder_attention_heads": [8],
    "num_key_value_heads": [1, 2, 4],
    "num_kv_heads": [1, 2, 4],
    "head_dim": [16, 32],
    "d_kv": [16, 24],
    "d_ff": [80, 128],
    "hidden_dim": [80, 128],
    "ffn_dim": [80, 128],
    "ffn_hidden_size": [80, 128],
    "expert_ffn_hidden_size": [48, 64],
    "encoder_ffn_dim": [80],
    "decoder_ffn_dim": [128],
    "feed_forward_proj": ["relu", "gated-gelu"],
    "intermediate_size": [80, 128, 192],
    "intermediate_size_mlp": [96, 160],
    "word_embed_proj_dim": [32, 64],
    "max_position_embeddings": [256],
    "n_positions": [256],
    "max_source_positions": [40],
    "max_target_positions": [64],
    "num_mel_bins": [8],
    "type_vocab_size": [1, 2],
    "attention_bias": [True, False],
    "attention_out_bias": [True, False],
    "mlp_bias": [True, False],
    "use_bias": [True, False],
    "use_qkv_bias": [True, False],
    "qkv_bias": [True, False],
    "bias": [True, False],
    "enable_bias": [True, False],
    "lm_head_bias": [True, False],
    "use_qk_norm": [True, False],
    "qk_layernorm": [True, False],
    "use_parallel_residual": [True, False],
    "parallel_attn": [True, False],
    "multi_query": [True, False],
    "new_decoder_architecture": [True, False],
    "sliding_window": [None, 8, 16],
    "sliding_window_pattern": [2, 3],
    "global_attn_every_n_layers": [2, 3],
    "use_sliding_window": [True, False],
    "max_window_layers": [1, 2],
    "attention_chunk_size": [8, 16],
    "no_rope_layer_interval": [2, 3],
    "local_attention": [8, 16],
    "num_experts": [4, 6],
    "num_local_experts": [4, 6],
    "n_routed_experts": [4, 8],
    "moe_num_experts": [4, 8],
    "num_experts_per_tok": [1, 2],
    "num_experts_per_token": [1, 2],
    "moe_topk": [1, 2],
    "moe_k": [1, 2],
    "top_k_experts": [1, 2],
    "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2],
    "moe_num_shared_experts": [1, 2],
    "moe_intermediate_size": [24, 48],
    "shared_expert_intermediate_size": [24, 40],
    "shared_intermediate_size": [24, 40],
    "moe_shared_expert_intermediate_size": [24, 40],
    "moe_latent_size": [None, 16],
    "decoder_sparse_step": [1, 2],
    "mlp_only_layers": [[], [0]],
    "first_k_dense_replace": [0, 1, 2],
    "num_dense_layers": [0, 1, 2],
    "interleave_moe_layer_step": [1, 2],
    "moe_layer_start_index": [0, 1],
    "moe_layer_end_index": [-1, 2],
    "moe_layer_interval": [1, 2],
    "n_group": [1],
    "topk_group": [1],
    "num_expert_group": [1],
    "zero_expert_num": [0],
    "kv_lora_rank": [16, 24],
    "q_lora_rank": [None, 20],
    "qk_nope_head_dim": [16],
    "qk_rope_head_dim": [8],
    "qk_head_dim": [24],
    "v_head_dim": [16, 24],
    "index_n_heads": [2, 4],
    "index_head_dim": [16],
    "index_topk": [4],
    "state_size": [8, 16],
    "ssm_state_size": [8, 16],
    "mamba_d_state": [8, 16],
    "conv_kernel": [3, 4],
    "mamba_d_conv": [3, 4],
    "conv_L_cache": [3, 4],
    "linear_conv_kernel_dim": [3, 4],
    "conv1d_width": [4],
    "mamba_n_groups": [1, 2],
    "n_groups": [1, 2],
    "mamba_conv_bias": [True, False],
    "mamba_proj_bias": [True, False],
    "projectors_bias": [True, False],
    "mamba_rms_norm": [True, False],
    "use_conv_bias": [True, False],
    "conv_bias": [True, False],
    "time_step_rank": ["auto", 5],
    "mamba_dt_rank": ["auto", 5],
    "attn_layer_period": [2, 3],
    "attn_layer_offset": [0, 1],
    "expert_layer_period": [2],
    "expert_layer_offset": [0, 1],
    "linear_num_key_heads": [2],
    "linear_num_value_heads": [2, 4],
    "linear_key_head_dim": [8, 16],
    "linear_value_head_dim": [8, 16],
    "linear_num_heads": [2, 4],
    "linear_head_dim": [16],
    "attention_hidden_size": [64],
    "lru_width": [64],
    "attention_window_size": [8],
    "block_size": [16],
    "block_multiple_of": [16],
    "block_auto_adjust_ff_dim": [True, False],
    "num_kv_shared_layers": [0, 1],
    "vocab_size_per_layer_input": [131],
    "hidden_size_per_layer_input": [8],
    "laurel_rank": [8],
    "attention_k_eq_v": [True, False],
    "use_double_wide_mlp": [True, False],
    "enable_moe_block": [True, False],
    "norm_bias": [True, False],
    "decoder_bias": [True, False],
    "classifier_bias": [True, False],
}


def small(family: str, fields: "set[str]", rng: random.Random) -> dict:
    """A small odd config of a family, from the fields that its class has."""
    made = {name: rng.choice(values) for name, values in CHOICES.items() if name in fields}
    width = made.get("hidden_size", 64)
    heads = made.get("num_attention_heads", 4)
    if made.get("num_key_value_heads") and heads % made["num_key_value_heads"]:
        made["num_key_value_heads"] = 1
    _mend(family, made, width, heads, rng)
    return made


def _mend(family: str, made: dict, width: int, heads: int, rng: random.Random) -> None:
    """What must hold between fields of a family, so that transformers can build it."""
    layers = made.get("num_hidden_layers", 3)
    if family == "mamba2":
        made["head_dim"], made["num_heads"], made["expand"] = 16, 2 * width // 16, 2
    if family in ("bamba", "granitemoehybrid", "falcon_h1"):
        made["mamba_n_heads"], made["mamba_d_head"], made["mamba_expand"] = 8, 2 * width // 8, 2
        if family == "falcon_h1":
            made["mamba_d_ssm"] = 2 * width
        if family == "bamba":
            made["attn_layer_indices"] = [1]
        if family == "granitemoehybrid":
            made["layer_types"] = [rng.choice(["attention", "mamba"]) for _ in range(layers)]
            made["num_local_experts"] = rng.choice([0, 4])
    if family == "nemotron_h":
        made.pop("num_hidden_layers", None)
        made["hybrid_override_pattern"] = "".join(rng.choice("M*-E") for _ in range(5)) + "M*"
        made["mamba_num_heads"], made["mamba_head_dim"] = 8, 16
    if family in ("lfm2", "lfm2_moe"):
        made["layer_types"] = [rng.choice(["conv", "full_attention"]) for _ in range(layers)]
    if family == "recurrent_gemma":
        made["num_key_value_heads"], made["lru_width"] = 1, width
        made.pop("head_dim", None)
    if family == "rwkv":
        made["attention_hidden_size"] = width
    if family in ("gemma3n_text",):
        made["num_hidden_layers"], made["num_kv_shared_layers"] = 10, rng.choice([0, 3, 5])
    if family == "gemma4_text":
        made["num_hidden_layers"], made["num_kv_shared_layers"] = 12, rng.choice([0, 2, 6])
        made["num_experts"], made["top_k_experts"], made["moe_intermediate_size"] = 4, 2, 24
        made["global_head_dim"], made["num_global_key_value_heads"] = 32, rng.choice([None, 2])
    if family == "gpt_neo":
        made["num_layers"], made["attention_types"] = 4, [[["global", "local"], 2]]
    if family == "mllama_text_model":
        made["cross_attention_layers"] = [1]
    if family in ("deepseek_v2",):
        made["head_dim"] = made["qk_rope_head_dim"]
    if family in ("deepseek_v32", "glm_moe_dsa") and made.get("q_lora_rank") is None:
        made["q_lora_rank"] = 20
    if family in ("exaone4", "exaone_moe") and made.get("sliding_window") is None:
        made["sliding_window"] = 8
    if family == "llama4_text":
        made["num_experts_per_tok"] = 1
    if family == "longcat_flash":
        made["q_lora_rank"] = 20
    if family in ("gemma2", "gemma3_text", "vaultgemma", "olmo3", "cohere2", "gpt_oss", "gemma3n_text", "gemma4_text", "cwm", "afmoe") and not made.get(
        "sliding_window"
    ):
        made["sliding_window"] = 8
    if family in ("phi", "persimmon", "gpt_neox", "stablelm", "bloom", "starcoder2", "mixtral", "minimax"):
        made.pop("head_dim", None)
    if family == "opt":
        made["word_embed_proj_dim"] = rng.choice([32, width])


CHOICES.update(
    {
        "embedding_size": [64, 24],
        "num_hidden_groups": [1, 2],
        "inner_group_num": [1, 2],
        "relative_attention": [True, False],
        "position_biased_input": [True, False],
        "position_buckets": [-1, 8],
        "share_att_key": [True, False],
        "pos_att_type": [["p2c", "c2p"], ["c2p"], []],
        "norm_rel_ebd": ["none", "layer_norm"],
        "conv_kernel_size": [0, 3],
    }
)

# What stands in a wrapper beside its text model and its tower.
AROUND: "dict[str, list]" = {
    "tie_word_embeddings": [True, False],
    "multimodal_projector_bias": [True, False],
    "projector_bias": [True, False],
    "projector_use_layernorm": [True, False],
    "downsample_factor": [2, 3],
    "alignment_intermediate_size": [96, 128],
    "projector_hidden_size": [48, 96],
    "spatial_merge_size": [2, 3],
    "scale_factor": [2, 3],
}

_TOWER: "dict[str, list]" = {
    "num_hidden_layers": [2, 3],
    "depth": [2, 3],
    "num_global_layers": [1, 2],
    "intermediate_size": [80, 96],
    "num_attention_heads": [4],
    "attention_heads": [4],
    "num_heads": [4],
    "num_key_value_heads": [2, 4],
    "head_dim": [16],
    "image_size": [56, 84],
    "patch_size": [14],
    "num_channels": [1, 3],
    "in_channels": [1, 3],
    "attention_bias": [True, False],
    "use_qk_norm": [True, False],
    "use_clipped_linears": [True, False],
    "standardize": [True, False],
    "position_embedding_size": [40],
    "num_patches": [36, 49],
    "num_position_embeddings": [36, 49],
    "vision_use_head": [True, False],
    "max_num_tiles": [2, 4],
    "pos_emb_height": [6],
    "pos_emb_width": [8],
    "deepstack_visual_indexes": [[0], [0, 1]],
}


def small_tower(tower: str, fields: "set[str]", text: int, rng: random.Random) -> dict:
    """A small odd config of a tower; `text` is the text model's width, which some towers end in."""
    made = {name: rng.choice(values) for name, values in _TOWER.items() if name in fields}
    made["hidden_size"] = made["embed_dim"] = 64
    for name in ("out_hidden_size", "hidden_size" if "embed_dim" in fields else "out_hidden_size"):
        made[name] = text
    if tower == "mllama_vision_model":
        made["intermediate_layers_indices"], made["vision_output_dim"] = [0, 1], 64 * 3
    if tower == "internvl_vision":
        made["image_size"] = [56, 56]
    return {name: value for name, value in made.items() if name in fields}
