"""Warpsmith: proves, measures and evolves CUDA kernels. `warpsmith.attention` holds the FP8 attention that it ships."""
