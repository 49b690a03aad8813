// From here to as_kernels.cuh an entry becomes a function that inlines: so a file for the gates can give it a launch plan's plain arguments.
// The gates pass addresses and numbers, no structs; the entry's own code is what they judge, the parameters' way in is not.
#undef __global__
#define __global__ __device__ __forceinline__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __grid_constant__
#define __grid_constant__
#define WS_MAP const TensorMap&   // a copy would lie in local memory, where TMA cannot read it
