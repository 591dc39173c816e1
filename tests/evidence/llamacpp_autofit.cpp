// Runs llama.cpp's own common/fit.cpp over made-up models whose memory is a formula, one question a line, and prints what it turned. See llamacpp_autofit.py, which
// cuts the decisions out of the source (FIT), has this file compiled with them, and asks. Everything that the decisions call is defined here.
// A line, whole numbers: devices blocks trained experts streams ctx least layers split overrides mode host · free and margin of each device (of one where there is none)
// · attention up gate down expert-up expert-gate expert-down output cache compute compute-per-256 seed.
#include "llama.h"
#include "ggml-backend.h"
#include "llama-ext.h"
#include "fit.h"
#include <cstdio>
#include <iostream>
#include <regex>
#include <sstream>

struct Made { long nd, blocks, trained, experts, streams, ctx, least, layers, split, overrides, mode, host; std::vector<long> free, margin; long w[7], output, cache, c0, c1, seed; };
static Made M;
static char devices[8], buffers[9];  // addresses that stand for devices and their buffer types; the last buffer is the host's
static const char * DEVICE_NAMES[8] = {"CUDA0", "CUDA1", "CUDA2", "CUDA3", "CUDA4", "CUDA5", "CUDA6", "CUDA7"};
struct llama_model { llama_model_params p; };
struct llama_context { llama_model_params p; llama_context_params c; };
static ggml_backend_buffer_type_t buffer_of(long i) { return (ggml_backend_buffer_type_t) (i < 0 ? &buffers[8] : &buffers[i]); }
static long index_of(ggml_backend_buffer_type_t b) { long i = (char *) b - buffers; return i == 8 ? -1 : i; }

static std::vector<llama_memory_breakdown_data> weigh(const llama_model_params & p, const llama_context_params & c) {
    std::vector<llama_memory_breakdown_data> out(M.nd + 1);
    long count = p.n_gpu_layers < 0 ? M.blocks + 1 : p.n_gpu_layers, start = std::max(M.blocks + 1 - count, 0L), active = std::min(count, M.blocks + 1);
    std::vector<float> points(M.nd);
    bool by_free = true;
    for (long i = 0; p.tensor_split && i < M.nd; i++) by_free = by_free && p.tensor_split[i] == 0.0f;
    float sum = 0.0f;
    for (long i = 0; i < M.nd; i++) { points[i] = by_free ? (float) M.free[i] : p.tensor_split[i]; sum += points[i]; points[i] = sum; }
    for (long i = 0; i < M.nd; i++) points[i] /= sum;
    static const char * names[7] = {"attn_q.weight", "ffn_up.weight", "ffn_gate.weight", "ffn_down.weight", "ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_down_exps.weight"};
    std::vector<long> layers(M.nd + 1);
    uint32_t ctx = c.n_ctx ? c.n_ctx : M.trained;
    for (long il = 0; il <= M.blocks; il++) {
        long home = M.nd;
        if (M.nd && il >= start && il - start < active) home = std::upper_bound(points.begin(), points.end(), float(il - start) / active) - points.begin();
        if (home > M.nd) home = M.nd;
        layers[home]++;
        if (il == M.blocks) { out[home].model += M.output; break; }
        out[home].context += M.cache * (long) (ctx / 256) * (1 + (il % 4 == 0));
        for (int t = 0; t < 7; t++) {
            long size = M.w[t] * (1 + (il * 7 + M.seed + t) % 3), where = home;
            std::string name = "blk." + std::to_string(il) + "." + names[t];
            for (auto * o = p.tensor_buft_overrides; o && o->pattern; o++) if (std::regex_search(name, std::regex(o->pattern))) { long b = index_of(o->buft); where = b < 0 ? M.nd : b; break; }
            out[where].model += size;
        }
    }
    for (long i = 0; i <= M.nd; i++) out[i].compute = (layers[i] ? M.c0 + M.c1 * (long) (ctx / 256) : M.c0 / 2) + (i == M.nd ? 4096 : 0);
    return out;
}

#include FIT

void llama_log_get(ggml_log_callback * f, void ** d) { *f = nullptr; *d = nullptr; }
void llama_log_set(ggml_log_callback, void *) {}
llama_model * llama_model_load_from_file(const char *, llama_model_params p) { return new llama_model{p}; }
llama_context * llama_init_from_model(llama_model * m, llama_context_params c) { return new llama_context{m->p, c}; }
void llama_model_free(llama_model * m) { delete m; }
void llama_free(llama_context * c) { delete c; }
int32_t llama_model_n_devices(const llama_model *) { return M.nd; }
ggml_backend_dev_t llama_model_get_device(const llama_model *, int i) { return (ggml_backend_dev_t) &devices[i]; }
int32_t llama_model_n_layer(const llama_model *) { return M.blocks; }
int32_t llama_model_n_layer_nextn(const llama_model *) { return 0; }
int32_t llama_model_n_ctx_train(const llama_model *) { return M.trained; }
int32_t llama_model_n_expert(const llama_model *) { return M.experts; }
size_t llama_max_tensor_buft_overrides(void) { return 4096; }
int64_t llama_time_us(void) { return 0; }
llama_model_params llama_model_default_params(void) { llama_model_params p = {}; p.n_gpu_layers = -1; p.split_mode = LLAMA_SPLIT_MODE_LAYER; return p; }
llama_memory_breakdown llama_get_memory_breakdown(const llama_context * c) {
    auto sizes = weigh(c->p, c->c);
    llama_memory_breakdown out;
    for (long i = 0; i <= M.nd; i++) out[buffer_of(i == M.nd ? -1 : i)] = sizes[i];
    return out;
}
bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t b) { return index_of(b) < 0; }
ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t b) { return (ggml_backend_dev_t) &devices[index_of(b)]; }
ggml_backend_dev_t ggml_backend_dev_by_type(enum ggml_backend_dev_type) { return (ggml_backend_dev_t) &devices[7]; }
enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }
void ggml_backend_dev_memory(ggml_backend_dev_t d, size_t * f, size_t * t) { long i = (char *) d - devices; *f = *t = i == 7 ? M.host : M.free[i]; }
const char * ggml_backend_dev_name(ggml_backend_dev_t d) { return DEVICE_NAMES[(char *) d - devices]; }
const char * ggml_backend_dev_description(ggml_backend_dev_t) { return "made up"; }
ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void) { return buffer_of(-1); }
ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t d) { return buffer_of((char *) d - devices); }
[[noreturn]] void ggml_abort(const char *, int, const char *, ...) { abort(); }
void common_memory_breakdown_print(const llama_context *) {}

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        M = Made();
        in >> M.nd >> M.blocks >> M.trained >> M.experts >> M.streams >> M.ctx >> M.least >> M.layers >> M.split >> M.overrides >> M.mode >> M.host;
        long many = std::max(M.nd, 1L);
        M.free.resize(many); M.margin.resize(many);
        for (long i = 0; i < many; i++) in >> M.free[i];
        for (long i = 0; i < many; i++) in >> M.margin[i];
        for (long & w : M.w) in >> w;
        in >> M.output >> M.cache >> M.c0 >> M.c1 >> M.seed;
        llama_model_params p = llama_model_default_params();
        llama_context_params c = {};
        float split[8] = {}, given[8] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
        std::vector<llama_model_tensor_buft_override> overrides(4096), fixed = {{"nothing", buffer_of(-1)}, {nullptr, nullptr}};
        std::vector<size_t> margins(M.margin.begin(), M.margin.end());
        c.n_ctx = M.ctx; c.n_seq_max = M.streams; c.kv_unified = false;
        if (M.layers >= 0) p.n_gpu_layers = M.layers;
        if (M.split) p.tensor_split = given;
        if (M.overrides) p.tensor_buft_overrides = fixed.data();
        p.split_mode = M.mode ? LLAMA_SPLIT_MODE_ROW : LLAMA_SPLIT_MODE_LAYER;
        int status = common_fit_params("", &p, &c, split, overrides.data(), margins.data(), M.least < 0 ? UINT32_MAX : M.least, nullptr, GGML_LOG_LEVEL_ERROR);
        printf("%d %u %d", status, c.n_ctx, p.n_gpu_layers);
        printf(" |"); for (long i = 0; i < M.nd; i++) printf(" %ld", (long) split[i]);
        printf(" |"); for (auto * o = M.overrides ? nullptr : p.tensor_buft_overrides; o && o->pattern; o++) printf(" %s=%ld", o->pattern, index_of(o->buft));
        printf("\n"); fflush(stdout);
    }
}
