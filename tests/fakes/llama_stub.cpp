// A libllama of a few functions for tests: the parameter structs of b11434 (LLAMA_STUB_OLD: of April 2026), one host buffer type, and faults on demand (LLAMA_STUB = hang, crash, exit, refuse, strange, big, greedy).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>

struct llama_context { int words; };
struct llama_model { int words; };
struct ggml_backend_buffer_type { const char * name; bool host; };
typedef ggml_backend_buffer_type * ggml_backend_buffer_type_t;
struct llama_memory_breakdown_data { size_t model, context, compute; };

static ggml_backend_buffer_type CPU = { "CPU", true }, REPACK = { "CPU_REPACK", false };
static llama_model MODEL;
static llama_context CONTEXT;
static uint32_t asked_ctx, asked_slots;
static bool asked_repack, asked_no_alloc;

static bool mode(const char * word) { const char * said = getenv("LLAMA_STUB"); return said && strcmp(said, word) == 0; }

extern "C" {
struct llama_model_params {
#ifdef LLAMA_STUB_OLD
    void * devices; void * overrides; int32_t n_gpu_layers, split_mode, main_gpu; const float * tensor_split; void * progress; void * data; void * kv;
    bool vocab_only, use_mmap, use_direct_io, use_mlock, check_tensors, use_extra_bufts, no_host, no_alloc;
#else
    void * devices; void * overrides; int32_t n_gpu_layers, split_mode, load_mode, lazy_mode, main_gpu; const float * tensor_split; void * progress; void * data; void * kv;
    bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
#endif
#ifdef LLAMA_STUB_BIG
    void * more[3];
#endif
};
struct llama_context_params {
#ifdef LLAMA_STUB_OLD
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max; int32_t n_threads, n_threads_batch, rope, pooling, attention, flash;
#else
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq; int32_t n_threads, n_threads_batch, kind, rope, pooling, attention, flash;
#endif
    float base, scale, ext, attn, fast, slow; uint32_t yarn; float defrag; void * eval; void * eval_data; int32_t type_k, type_v; void * abort_cb; void * abort_data;
    bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified; void * samplers; size_t n_samplers;
#ifndef LLAMA_STUB_OLD
    void * other;
#endif
};

llama_model_params llama_model_default_params() {
    llama_model_params p;
    memset(&p, 0, sizeof p);
    p.n_gpu_layers = mode("strange") ? 77777 : -1; p.split_mode = 1; p.use_extra_bufts = true;
#ifdef LLAMA_STUB_OLD
    p.use_mmap = true;
#else
    p.load_mode = -1; p.lazy_mode = 1;
#endif
    return p;
}
llama_context_params llama_context_default_params() {
    llama_context_params p;
    memset(&p, 0, sizeof p);
    p.n_ctx = 512; p.n_batch = 2048; p.n_ubatch = 512; p.n_seq_max = 1; p.n_threads = p.n_threads_batch = 4; p.rope = p.pooling = p.attention = p.flash = -1;
    p.ext = p.attn = p.fast = p.slow = p.defrag = -1.0f; p.type_k = p.type_v = 1; p.offload_kqv = p.no_perf = p.op_offload = p.swa_full = true;
    return p;
}
void llama_backend_init() {}
llama_model * llama_model_load_from_file(const char *, llama_model_params p) {
    if (mode("hang")) for (;;) sleep(1);
    if (mode("crash")) *(volatile int *) nullptr = 1;
    if (mode("exit")) _exit(3);
    if (mode("greedy")) { size_t held = (size_t) 64 << 30; char * all = (char *) malloc(held); if (!all) { (void) !write(2, "no memory\n", 10); return nullptr; } memset(all, 1, held); }
    asked_repack = p.use_extra_bufts; asked_no_alloc = p.no_alloc;
#ifdef LLAMA_STUB_OLD
    asked_no_alloc = asked_no_alloc && !p.use_mmap;
#endif
    return mode("refuse") ? nullptr : &MODEL;
}
llama_context * llama_init_from_model(llama_model *, llama_context_params p) { asked_ctx = p.n_ctx; asked_slots = p.n_seq_max; return &CONTEXT; }
size_t ggml_backend_dev_count() { return 1; }
void * ggml_backend_dev_get(size_t) { return &CPU; }
void * ggml_backend_dev_buffer_type(void *) { return &CPU; }
const char * ggml_backend_buft_name(ggml_backend_buffer_type_t type) { return type->name; }
bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t type) { return type->host; }
}
std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> llama_get_memory_breakdown(const llama_context *) {
    std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> told;
    told[&CPU] = { asked_no_alloc ? (size_t) 1000 : 0, (size_t) asked_ctx * asked_slots, 7 };
    if (asked_repack) told[&REPACK] = { 500, 0, 0 };
    return told;
}
