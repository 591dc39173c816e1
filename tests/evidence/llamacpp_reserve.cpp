// Reserves a context of any model of llama.cpp without weights or a file, and prints what it would hold: the oracle of
// tests/golden/llamacpp_reserved.json.gz.
//
// Build beside a libllama of the same build (b11434), whose internal headers it includes, and give it a text file, one line an item:
//   s|u|f|b KEY VALUE       metadata: string, unsigned, float, bool; U|Q|B|F KEY a,b,c are arrays (Q of 64 bits)
//   t NAME [i32]            a tensor's name in the header, f16 unless i32
//   file PATH               a sparse GGUF file to open instead of a model made of the metadata alone, which has every optional tensor
//   target PATH             a sparse GGUF file of the target whose matrices a draft uses
//   shares A,B,…            load with `--split-mode tensor` over as many CPU devices; `device INDEX WEIGHTS CONTEXT COMPUTE` follows each run
//   run CTX SLOTS UNIFIED UBATCH FLASH CTK CTV OUTPUTS EMBEDDINGS [SWA_FULL [ROLLBACK_ROWS [MTP]]]  (MTP 2: with the draft's samplers, 3: only they, 4: on every row of a slot)
// With the variable NODES set the graph's operations follow each run. Prints `tensor NAME TYPE NE0 NE1 NE2 NE3` for every weight, then `run COMPUTE CONTEXT NODES` in bytes for every run line.
#include "llama.h"
#include "ggml.h"
#include "gguf.h"
#include "ggml-backend.h"
#include "../src/llama-model.h"
#include "../src/llama-context.h"
#include "../src/llama-arch.h"
#include "ggml-impl.h"
#include "ggml-backend-impl.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <set>
#include <vector>
// the meta device's own source, under other names, for its buffers' layout
#define ggml_backend_meta_split_axis_name peek_split_axis_name
#define ggml_backend_meta_device peek_device
#define ggml_backend_buft_is_meta peek_buft_is_meta
#define ggml_backend_meta_buffer_set_usage peek_buffer_set_usage
#define ggml_backend_is_meta peek_is_meta
#define ggml_backend_meta_n_backends peek_n_backends
#define ggml_backend_meta_simple_backend peek_simple_backend
#define ggml_backend_buffer_is_meta peek_buffer_is_meta
namespace peek {
bool peek_buft_is_meta(ggml_backend_buffer_type_t);
bool peek_buffer_is_meta(ggml_backend_buffer_t);
bool peek_is_meta(ggml_backend_t);
size_t peek_n_backends(ggml_backend_t);
ggml_backend_t peek_simple_backend(ggml_backend_t, size_t);
#include "../ggml/src/ggml-backend-meta.cpp"
}
#undef ggml_backend_buffer_is_meta
#undef ggml_backend_buft_is_meta
static size_t held(const std::set<ggml_backend_buffer_t> &buffers, size_t device) {
    size_t sum = 0;
    for (auto *b : buffers)
        sum += ggml_backend_buffer_get_size(((peek::ggml_backend_meta_buffer_context *)b->context)->bufs[device].get());
    return sum;
}
static std::string caught;
static void logcb(ggml_log_level l, const char *t, void *) {
    if (l >= GGML_LOG_LEVEL_ERROR)
        fputs(t, stderr);
    if (strstr(t, "graph") || strstr(t, "compute buffer") || strstr(t, "KV buffer") || strstr(t, "RS buffer"))
        caught += t;
}
static void nodata(ggml_tensor *, void *) {}
int main(int argc, char **argv) {
    llama_log_set(logcb, nullptr);
    llama_backend_init();
    setvbuf(stdout, nullptr, _IOLBF, 0);
    std::ifstream in(argv[1]);
    std::string line;
    gguf_context *g = gguf_init_empty();
    llama_model *model = nullptr;
    std::string path;
    llama_model *target = nullptr;
    std::vector<float> shares;
    std::vector<ggml_backend_dev_t> devices;
    auto split = [](const std::string &s) {
        std::vector<std::string> o;
        std::stringstream ss(s);
        std::string x;
        while (std::getline(ss, x, ','))
            o.push_back(x);
        return o;
    };
    while (std::getline(in, line)) {
        std::stringstream ss(line);
        std::string k;
        ss >> k;
        if (k == "run") {
            if (!model) {
                auto mp = llama_model_default_params();
                mp.n_gpu_layers = 0;
                mp.load_mtp = getenv("LOAD_MTP") != nullptr;
                mp.use_extra_bufts = false;
                if (!shares.empty()) {
                    devices.assign(shares.size(), ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
                    devices.push_back(nullptr);
                    shares.resize(128, 0.0f);
                    mp.devices = devices.data();
                    mp.split_mode = LLAMA_SPLIT_MODE_TENSOR;
                    mp.tensor_split = shares.data();
                    mp.n_gpu_layers = 999;
                }
                model = path.empty() ? llama_model_init_from_user(g, nodata, nullptr, mp) : llama_model_load_from_file(path.c_str(), mp);
                if (!model) {
                    printf("FAIL model\n");
                    return 1;
                }
                for (auto &p : model->tensors_by_name) {
                    auto *t = p.second;
                    printf("tensor %s %s %lld %lld %lld %lld\n", p.first.c_str(), ggml_type_name(t->type), (long long)t->ne[0],
                           (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
                }
            }
            int nctx, nseq, uni, ub, fa, outs, emb, swa = 0, rows = 0, mtp = 0;
            std::string tk, tv;
            ss >> nctx >> nseq >> uni >> ub >> fa >> tk >> tv >> outs >> emb >> swa >> rows >> mtp;
            auto cp = llama_context_default_params();
            cp.n_ctx = nctx;
            cp.n_batch = 2048;
            cp.n_ubatch = ub;
            cp.n_seq_max = nseq;
            cp.kv_unified = uni;
            cp.flash_attn_type = fa ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
            cp.n_outputs_max = outs;
            cp.swa_full = swa;
            cp.n_rs_seq = rows;
            if (mtp == 1 || mtp == 2) {
                cp.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
            }
            if (mtp)
                cp.n_outputs_max_per_seq = mtp == 4 ? outs / nseq : 1;
            cp.embeddings = emb;
            auto ty = [](std::string s) {
                for (int i = 0; i < GGML_TYPE_COUNT; i++)
                    if (ggml_type_name((ggml_type)i) && s == ggml_type_name((ggml_type)i))
                        return (ggml_type)i;
                return GGML_TYPE_F16;
            };
            cp.type_k = ty(tk);
            cp.type_v = ty(tv);
            if (target) {
                auto beside = cp;
                beside.ctx_type = LLAMA_CONTEXT_TYPE_DEFAULT;
                cp.ctx_other = llama_init_from_model(target, beside);
            }
            caught.clear();
            llama_context *c = llama_init_from_model(model, cp);
            if (!c) {
                printf("run FAIL %s\n", line.c_str());
                continue;
            }
            if (mtp >= 2) { // as the draft does before its first token
                for (int i = 0; i < nseq; i++) {
                    auto *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
                    llama_sampler_chain_add(chain, llama_sampler_init_top_k(10));
                    llama_set_sampler(c, i, chain);
                }
                c->sched_reserve();
            }
            size_t comp = 0, cx = 0;
            for (auto &e : c->memory_breakdown()) {
                comp += e.second.compute;
                cx += e.second.context;
            }
            std::string nodes;
            auto p = caught.find("nodes = ");
            if (p != std::string::npos)
                nodes = caught.substr(p + 8, caught.find(",", p) - p - 8);
            printf("run %zu %zu %s\n", comp, cx, nodes.c_str());
            if (getenv("NODES")) {
                auto *gf = c->get_gf_res_reserve()->get_gf();
                for (int i = 0; i < ggml_graph_n_nodes(gf); i++) {
                    auto *n = ggml_graph_node(gf, i);
                    printf("  %s %s %lld %lld %lld %lld %s\n", ggml_op_name(n->op), ggml_type_name(n->type), (long long)n->ne[0],
                           (long long)n->ne[1], (long long)n->ne[2], (long long)n->ne[3], n->name);
                }
            }
            if (!devices.empty()) {
                std::set<ggml_backend_buffer_t> weights, caches;
                size_t each = 0;
                for (auto &e : c->memory_breakdown())
                    if (ggml_backend_buft_is_meta(e.first))
                        each += e.second.compute;
                for (auto &p : model->tensors_by_name)
                    if (p.second->buffer && ggml_backend_buffer_is_meta(p.second->buffer))
                        weights.insert(p.second->buffer);
                auto *gf = c->get_gf_res_reserve()->get_gf();
                for (int i = 0; i < gf->n_leafs; i++) {
                    auto *b = gf->leafs[i]->buffer;
                    if (b && ggml_backend_buffer_is_meta(b) && !weights.count(b) && !(gf->leafs[i]->flags & GGML_TENSOR_FLAG_INPUT))
                        caches.insert(b);
                }
                for (size_t j = 0; j + 1 < devices.size(); j++)
                    printf("device %zu %zu %zu %zu\n", j, held(weights, j), held(caches, j), each);
            }
            fflush(stdout);
            llama_free(c);
            if (cp.ctx_other)
                llama_free(cp.ctx_other);
        } else {
            std::string key;
            ss >> key;
            std::string v;
            std::getline(ss, v);
            if (!v.empty() && v[0] == ' ')
                v = v.substr(1);
            if (k == "shares") {
                for (auto &x : split(key))
                    shares.push_back(std::stof(x));
            } else if (k == "target") {
                auto mp = llama_model_default_params();
                mp.n_gpu_layers = 0;
                mp.use_extra_bufts = false;
                target = llama_model_load_from_file(key.c_str(), mp);
            } else if (k == "file")
                path = key;
            else if (k == "s")
                gguf_set_val_str(g, key.c_str(), v.c_str());
            else if (k == "u")
                gguf_set_val_u32(g, key.c_str(), std::stoul(v));
            else if (k == "f")
                gguf_set_val_f32(g, key.c_str(), std::stof(v));
            else if (k == "b")
                gguf_set_val_bool(g, key.c_str(), v == "1");
            else if (k == "U") {
                std::vector<uint32_t> a;
                for (auto &x : split(v))
                    a.push_back(std::stoul(x));
                gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_UINT32, a.data(), a.size());
            } else if (k == "Q") {
                std::vector<uint64_t> a;
                for (auto &x : split(v))
                    a.push_back(std::stoull(x));
                gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_UINT64, a.data(), a.size());
            } else if (k == "B") {
                std::vector<int8_t> a;
                for (auto &x : split(v))
                    a.push_back(std::stoi(x));
                gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_BOOL, a.data(), a.size());
            } else if (k == "F") {
                std::vector<float> a;
                for (auto &x : split(v))
                    a.push_back(std::stof(x));
                gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_FLOAT32, a.data(), a.size());
            } else if (k == "t") {
                ggml_tensor t;
                memset(&t, 0, sizeof t);
                t.type = v == "i32" ? GGML_TYPE_I32 : GGML_TYPE_F16;
                ggml_set_name(&t, key.c_str());
                gguf_add_tensor(g, &t);
            }
        }
    }
    return 0;
}
