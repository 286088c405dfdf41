"""A real speculative decoder in torch: what the model predicts, this measures.

The package knows nothing of rooflines or simulation; it meets them only in measured records.

    config        what a checkpoint is (Llama, Qwen2, Qwen3, Qwen3-MoE)
    options       what a run is: slots, draft length, dtype, sampling of each request
    models         find and load a model: folder, GGUF file, SmolLM2 (fetched once), random weights
    weights, gguf_files, tokenizer                          files
    layers, transformer, attention, kv_cache                the forward pass
    kernels, native(_ops), triton_kernels   the fused kernels: torch, numba (CPU), Triton (CUDA)
    state, sampling, step                   one draft-verify-sample-commit step, tensors only
    drafters, build                         draft model, EAGLE/MTP head, n-gram, suffix, early exit
    graphs, timing                          CUDA graphs, phase times
    engine, slots                           continuous batching

Conventions: a token's position is its index in the sequence; `n` counts committed tokens, the
last of which is *pending* (its keys and values are not in the cache yet). Words for tokens are
vLLM's: a *draft* token is *accepted* or rejected; the first rejection is replaced by a
*recovered* token; when nothing is rejected a *bonus* token is drawn. Times are seconds.

Needs the extra `specsim-llm[decoder]` (torch, safetensors, tokenizers, gguf). Importing this
package imports nothing; import the module you need.
"""
