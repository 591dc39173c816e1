"""The measured constants of a PyTorch training process, each with where it was measured; a number without a source does not live here."""

from brim.units import MIB, Span

# Device context with kernels and libraries. Low: lazy loading, 287,047,680 bytes (pytorch PR 86509); likely: 0.51 GiB on an H100 before any load (vLLM 0.19 accuracy
# study), 300–400 MB from CUDA 11.7 on (pytorch issues 107667, 109888); high: an RTX 5070 Ti's 1.4 GB, driver and runtime together (Unsloth Studio note).
CUDA_CONTEXT = Span(low=287_047_680, likely=480 * MIB, high=1_000 * MIB)
CUDA_CONTEXT_SOURCE = "pytorch PR 86509 (lazy loading), vLLM 0.19 on H100 before load, pytorch issues 107667 and 109888"

# cuBLAS workspace, taken from torch's allocator: 8,519,680 bytes observed; 32 MiB on Hopper (pytorch PR 120925).
CUBLAS = Span(low=8_519_680, likely=8_519_680, high=2 * 33_554_432)

# A Python process with torch and transformers imported, no model: resident memory measured here with torch 2.13.0+cpu, transformers 5.24 (see docs/evidence/train-run.md).
HOST_PROCESS = Span(low=280 * MIB, likely=430 * MIB, high=900 * MIB)
HOST_PROCESS_SOURCE = "resident memory after import, torch 2.13.0+cpu with transformers 5.24, measured for docs/evidence/train-run.md"

# The same process when it trains on the CPU itself: code pages, oneDNN's scratch and what malloc keeps. Resident peak less live tensors was 724 and 936 million bytes in
# two runs (SmolLM2's shape and GPT-2, fp32, 2 × 256 tokens, torch 2.13.0+cpu); the libraries alone are 248 million (docs/evidence/train-run.md).
CPU_PROCESS = Span(low=280 * MIB, likely=760 * MIB, high=1_300 * MIB)

# One data-loader worker: a forked Python process whose pages are mostly shared.
WORKER = Span(low=30 * MIB, likely=120 * MIB, high=400 * MIB)

# Reserved over allocated: what torch's caching allocator holds beyond live tensors, as parts per thousand of the bytes that come and go (activations, logits, gradients,
# buffers). FSDP QLoRA benchmarks: 10.24 reserved over 8.28 allocated, 10.22 over 9.16; PEFT comparison: peaks 1.13 (full) and 1.55 (LoRA) over averages.
SLACK_PER_MILLE = (0, 60, 250)

# The same where weights are gathered and dropped all the time (FSDP, ZeRO-3): the pairs 8.28 → 10.24 and 9.16 → 10.22 GiB of the FSDP QLoRA benchmarks, taken over what
# comes and goes in them (5.0 and 5.9 GiB): 390 and 180 per mille.
SLACK_GATHERED_PER_MILLE = (0, 280, 600)

# torch.compile keeps less than eager: one ladder measured 60.0 → 51.0 GiB with 23.9 of states (torchtune README): 0.75 of what comes and goes.
COMPILED_PER_MILLE = (500, 750, 1000)

# Where an architecture's code is not known, or a block is estimated: how far activations may lie from the tape.
UNSURE_PER_MILLE = (600, 1000, 1600)

# Experts of an unknown architecture may be run over every token (as Llama 4's code does), not only over those that were sent to them: 2.3 times, seen on one such model.
UNSURE_EXPERTS_PER_MILLE = (600, 1000, 2600)
KNOWN_PER_MILLE = (970, 1000, 1030)
