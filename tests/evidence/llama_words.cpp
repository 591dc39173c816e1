// Reads command lines from standard input and prints what llama.cpp's own parser makes of each, as one JSON object a line. See llama_words.py.
// A line: the llama_example number, the count of variables, NAME=VALUE of each, the words; all parted by the byte 0x1f. A fork a line, because a bad word may end the program.
// Build: g++ -std=c++17 -I SRC/common -I SRC/include -I SRC/ggml/include -I SRC/vendor llama_words.cpp -L BUILD/bin -lllama-common -lllama -lggml -lggml-base -Wl,-rpath,BUILD/bin
#include "arg.h"
#include "common.h"
#include "speculative.h"
#include "llama.h"
#include <cstdio>
#include <string>
#include <vector>
#include <iostream>
#include <unistd.h>
#include <sys/wait.h>
#include <fcntl.h>
int main(){
  std::string line;
  while(std::getline(std::cin,line)){
    std::vector<std::string> w; std::string cur;
    for(char c:line){ if(c=='\x1f'){w.push_back(cur);cur.clear();} else cur+=c; } w.push_back(cur);
    int ex=std::stoi(w[0]); int nenv=std::stoi(w[1]);
    fflush(stdout);
    pid_t p=fork();
    if(p==0){
      int fd=dup(1); int nul=open("/dev/null",O_WRONLY); dup2(nul,1); dup2(nul,2);
      for(int i=0;i<nenv;i++){ putenv(strdup(w[2+i].c_str())); }
      std::vector<char*> argv; argv.push_back((char*)"prog");
      for(size_t i=2+nenv;i<w.size();i++) argv.push_back((char*)w[i].c_str());
      common_params params;
      bool ok=false;
      try{ ok=common_params_parse((int)argv.size(),argv.data(),params,(llama_example)ex); }catch(...){ok=false;}
      FILE*f=fdopen(fd,"w");
      if(!ok){ fprintf(f,"{\"ok\":false}\n"); fflush(f); _exit(0);}      
      fprintf(f,"{\"ok\":true,\"ctx\":%d,\"batch\":%d,\"ubatch\":%d,\"slots\":%d,\"kv_unified\":%d,\"flash\":%d,\"ctk\":\"%s\",\"ctv\":\"%s\",\"ngl\":%d,\"swa_full\":%d,\"no_kvo\":%d,\"no_opo\":%d,\"no_extra\":%d,\"no_host\":%d,\"load_mode\":%d,\"lazy\":%d,\"sm\":%d,\"mg\":%d,\"fit\":%d,\"fit_ctx\":%d,\"ctxcp\":%d,\"cram\":%d,\"per_slot\":%d,\"cms\":%d,\"emb\":%d,\"pool\":%d,\"nmax\":%d,\"dngl\":%d,\"dctk\":\"%s\",\"dctv\":\"%s\",\"mmproj\":\"%s\",\"mmgpu\":%d,\"no_mmproj\":%d,\"model\":\"%s\",\"hf\":\"%s\",\"hff\":\"%s\",\"url\":\"%s\",\"md\":\"%s\",\"warmup\":%d,\"imin\":%d,\"imax\":%d,\"threads\":%d,\"attn\":%d,\"fitt\":%zu",
        params.n_ctx,params.n_batch,params.n_ubatch,params.n_parallel,params.kv_unified,(int)params.flash_attn_type,ggml_type_name(params.cache_type_k),ggml_type_name(params.cache_type_v),params.n_gpu_layers,params.swa_full,params.no_kv_offload,params.no_op_offload,params.no_extra_bufts,params.no_host,(int)params.load_mode,(int)params.lazy_mode,(int)params.split_mode,params.main_gpu,params.fit_params,params.fit_params_min_ctx,params.n_ctx_checkpoints,params.cache_ram_mib,params.kv_unified_per_slot,params.checkpoint_min_step,params.embedding,(int)params.pooling_type,params.speculative.draft.n_max,params.speculative.draft.n_gpu_layers,ggml_type_name(params.speculative.draft.cache_type_k),ggml_type_name(params.speculative.draft.cache_type_v),params.mmproj.path.c_str(),params.mmproj_use_gpu,params.no_mmproj,params.model.path.c_str(),params.model.hf_repo.c_str(),params.model.hf_file.c_str(),params.model.url.c_str(),params.speculative.draft.mparams.path.c_str(),params.warmup,params.image_min_tokens,params.image_max_tokens,params.cpuparams.n_threads,(int)params.attention_type,params.fit_params_target.empty()?0:params.fit_params_target[0]>>20);
      fprintf(f,",\"ts\":[%g,%g,%g]",params.tensor_split[0],params.tensor_split[1],params.tensor_split[2]);
      fprintf(f,",\"spec_n\":%d",common_speculative_n_max(&params.speculative));
      fprintf(f,",\"rs\":%d",(int)params.speculative.need_n_rs_seq());
      fprintf(f,",\"lora\":[");
      for(size_t i=0;i<params.lora_adapters.size();i++) fprintf(f,"%s\"%s\"",i?",":"",params.lora_adapters[i].path.c_str());
      int nov=0; for(auto&o:params.tensor_buft_overrides) if(o.pattern) nov++;
      fprintf(f,"],\"n_ot\":%d,\"npl\":[",nov);
      for(size_t i=0;i<params.n_pl.size();i++) fprintf(f,"%s%d",i?",":"",params.n_pl[i]);
      fprintf(f,"]}\n"); fflush(f); _exit(0);
    }
    int st; waitpid(p,&st,0);
    if(!WIFEXITED(st)||WEXITSTATUS(st)!=0){ printf("{\"ok\":false}\n"); fflush(stdout);}    
  }
}
