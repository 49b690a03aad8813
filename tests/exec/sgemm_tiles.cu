// A product in tiles of registers, with vector accesses.
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1) sgemmVectorize(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C) {
  const uint cRow = blockIdx.y; const uint cCol = blockIdx.x;
  const int threadCol = threadIdx.x % (BN / TN); const int threadRow = threadIdx.x / (BN / TN);
  __shared__ float As[BM * BK]; __shared__ float Bs[BK * BN];
  A += cRow * BM * K; B += cCol * BN; C += cRow * BM * N + cCol * BN;
  const uint innerRowA = threadIdx.x / (BK / 4), innerColA = threadIdx.x % (BK / 4), innerRowB = threadIdx.x / (BN / 4), innerColB = threadIdx.x % (BN / 4);
  float threadResults[TM * TN] = {0.0}; float regM[TM] = {0.0}; float regN[TN] = {0.0};
  for (uint bkIdx = 0; bkIdx < K; bkIdx += BK) {
    float4 tmp = reinterpret_cast<float4 *>(&A[innerRowA * K + innerColA * 4])[0];
    As[(innerColA * 4 + 0) * BM + innerRowA] = tmp.x; As[(innerColA * 4 + 1) * BM + innerRowA] = tmp.y; As[(innerColA * 4 + 2) * BM + innerRowA] = tmp.z; As[(innerColA * 4 + 3) * BM + innerRowA] = tmp.w;
    reinterpret_cast<float4 *>(&Bs[innerRowB * BN + innerColB * 4])[0] = reinterpret_cast<float4 *>(&B[innerRowB * N + innerColB * 4])[0];
    __syncthreads();
    A += BK; B += BK * N;
    for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) {
      for (uint i = 0; i < TM; ++i) regM[i] = As[dotIdx * BM + threadRow * TM + i];
      for (uint i = 0; i < TN; ++i) regN[i] = Bs[dotIdx * BN + threadCol * TN + i];
      for (uint r = 0; r < TM; ++r) for (uint c = 0; c < TN; ++c) threadResults[r * TN + c] += regM[r] * regN[c];
    }
    __syncthreads();
  }
  for (uint r = 0; r < TM; r += 1) for (uint c = 0; c < TN; c += 4) {
      float4 tmp = reinterpret_cast<float4 *>(&C[(threadRow * TM + r) * N + threadCol * TN + c])[0];
      tmp.x = alpha * threadResults[r * TN + c] + beta * tmp.x; tmp.y = alpha * threadResults[r * TN + c + 1] + beta * tmp.y;
      tmp.z = alpha * threadResults[r * TN + c + 2] + beta * tmp.z; tmp.w = alpha * threadResults[r * TN + c + 3] + beta * tmp.w;
      reinterpret_cast<float4 *>(&C[(threadRow * TM + r) * N + threadCol * TN + c])[0] = tmp;
  }
}
