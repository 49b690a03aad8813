// Digests of conversion tables made by NVIDIA's own functions, compiled for the host. The tables, their order and the digest are those
// of crates/num/src/digests.rs; each line of the output is a digest, a tab and the table's name. With the argument "all": every f32.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"

typedef uint32_t u32;
typedef uint64_t u64;

struct Fold {
    u64 hash = 0xcbf29ce484222325ull;
    void add(u32 word) { hash = (hash ^ word) * 0x100000001b3ull; }
};

template <class T, class U> T cast(U value) {
    static_assert(sizeof(T) == sizeof(U), "same size");
    T to;
    std::memcpy(&to, &value, sizeof to);
    return to;
}

static u64 fold_chunks(const std::vector<u64> &chunks) {
    Fold all;
    for (u64 chunk : chunks) {
        all.add((u32)chunk);
        all.add((u32)(chunk >> 32));
    }
    return all.hash;
}

// As `mantissas` in digests.rs.
template <class F> static void mantissas(int bits, F f) {
    int low = bits - 11;
    for (u64 high = 0; high < 1 << 11; high++) {
        f(high << low);
        f(high << low | ((1ull << low) - 1));
        f(high << low | 1);
        f(high << low | 1ull << (low - 1));
    }
}

static bool all_inputs = false;

template <class F> static void from_f32(const char *name, F to) {
    std::vector<u64> chunks(512);
    std::vector<std::thread> threads;
    unsigned count = std::thread::hardware_concurrency();
    if (count == 0) count = 1;
    for (unsigned t = 0; t < count; t++)
        threads.emplace_back([&, t] {
            for (u32 chunk = t; chunk < 512; chunk += count) {
                Fold fold;
                if (all_inputs)
                    for (u32 mantissa = 0; mantissa < 1u << 23; mantissa++) fold.add(to(cast<float>(chunk << 23 | mantissa)));
                else
                    mantissas(23, [&](u64 mantissa) { fold.add(to(cast<float>(chunk << 23 | (u32)mantissa))); });
                chunks[chunk] = fold.hash;
            }
        });
    for (auto &thread : threads) thread.join();
    std::printf("%016llx\t%s\n", (unsigned long long)fold_chunks(chunks), name);
}

template <class F> static void from_f64(const char *name, F to) {
    std::vector<u64> exponents = {0, 1}, chunks;
    for (u64 exponent = 1023 - 160; exponent <= 1023 + 140; exponent++) exponents.push_back(exponent);
    exponents.push_back(2046);
    for (u64 exponent : exponents)
        for (u64 field : {exponent, exponent | 1 << 11}) {
            Fold fold;
            mantissas(52, [&](u64 mantissa) { fold.add(to(cast<double>(field << 52 | mantissa))); });
            chunks.push_back(fold.hash);
        }
    Fold infinities;
    for (u64 bits : {0x7ffull << 52, 0xfffull << 52}) infinities.add(to(cast<double>(bits)));
    chunks.push_back(infinities.hash);
    std::printf("%016llx\t%s\n", (unsigned long long)fold_chunks(chunks), name);
}

template <class F> static void from_code(const char *name, int bits, F to) {
    Fold fold;
    for (u32 code = 0; code < 1u << bits; code++) fold.add(to(code));
    std::printf("%016llx\t%s\n", (unsigned long long)fold.hash, name);
}

static u32 half_bits(__half value) { return __half_raw(value).x; }
static u32 bfloat_bits(__nv_bfloat16 value) { return __nv_bfloat16_raw(value).x; }
static __half_raw half_raw(u32 bits) {
    __half_raw raw;
    raw.x = (unsigned short)bits;
    return raw;
}
static __nv_bfloat16_raw bfloat_raw(u32 bits) {
    __nv_bfloat16_raw raw;
    raw.x = (unsigned short)bits;
    return raw;
}
static u32 reversed(u32 code) {
    u32 result = 0;
    for (int bit = 0; bit < 16; bit++) result |= (code >> bit & 1) << (15 - bit);
    return result;
}
static __half2_raw pair(u32 code) {
    __half2_raw raw;
    raw.x = (unsigned short)code;
    raw.y = (unsigned short)reversed(code);
    return raw;
}
static u32 pair_bits(__half2_raw raw) { return (u32)raw.y << 16 | raw.x; }
static float wide(u32 code, __nv_fp8_interpretation_t kind) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, kind)));
}

int main(int argc, char **argv) {
    all_inputs = argc > 1 && !std::strcmp(argv[1], "all");
    from_f32("f32 -> e4m3 satfinite", [](float x) -> u32 { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
    from_f32("f32 -> e4m3 nosat", [](float x) -> u32 { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3); });
    from_f32("f32 -> e5m2 satfinite", [](float x) -> u32 { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); });
    from_f32("f32 -> e5m2 nosat", [](float x) -> u32 { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2); });
    from_f32("f32 -> f16 rn", [](float x) { return half_bits(__float2half_rn(x)); });
    from_f32("f32 -> f16 rz", [](float x) { return half_bits(__float2half_rz(x)); });
    from_f32("f32 -> f16 rd", [](float x) { return half_bits(__float2half_rd(x)); });
    from_f32("f32 -> f16 ru", [](float x) { return half_bits(__float2half_ru(x)); });
    from_f32("f32 -> bf16 rn", [](float x) { return bfloat_bits(__float2bfloat16_rn(x)); });
    from_f32("f32 -> bf16 rz", [](float x) { return bfloat_bits(__float2bfloat16_rz(x)); });
    from_f32("f32 -> bf16 rd", [](float x) { return bfloat_bits(__float2bfloat16_rd(x)); });
    from_f32("f32 -> bf16 ru", [](float x) { return bfloat_bits(__float2bfloat16_ru(x)); });
    if (all_inputs) return 0;
    from_f64("f64 -> e4m3 satfinite", [](double x) -> u32 { return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
    from_f64("f64 -> e5m2 satfinite", [](double x) -> u32 { return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, __NV_E5M2); });
    from_f64("f64 -> f16 rn", [](double x) { return half_bits(__double2half(x)); });
    from_f64("f64 -> bf16 rn", [](double x) { return bfloat_bits(__double2bfloat16(x)); });
    from_code("f16 -> e4m3 satfinite", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw_to_fp8(half_raw(x), __NV_SATFINITE, __NV_E4M3); });
    from_code("f16 -> e5m2 satfinite", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw_to_fp8(half_raw(x), __NV_SATFINITE, __NV_E5M2); });
    from_code("f16 -> e4m3 nosat", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw_to_fp8(half_raw(x), __NV_NOSAT, __NV_E4M3); });
    from_code("f16 -> e5m2 nosat", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw_to_fp8(half_raw(x), __NV_NOSAT, __NV_E5M2); });
    from_code("bf16 -> e4m3 satfinite", 16, [](u32 x) -> u32 { return __nv_cvt_bfloat16raw_to_fp8(bfloat_raw(x), __NV_SATFINITE, __NV_E4M3); });
    from_code("bf16 -> e5m2 satfinite", 16, [](u32 x) -> u32 { return __nv_cvt_bfloat16raw_to_fp8(bfloat_raw(x), __NV_SATFINITE, __NV_E5M2); });
    from_code("f16 -> f32", 16, [](u32 x) { return cast<u32>(__half2float(__half(half_raw(x)))); });
    from_code("bf16 -> f32", 16, [](u32 x) { return cast<u32>(__bfloat162float(__nv_bfloat16(bfloat_raw(x)))); });
    from_code("e4m3 -> f16", 8, [](u32 x) -> u32 { return __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, __NV_E4M3).x; });
    from_code("e5m2 -> f16", 8, [](u32 x) -> u32 { return __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, __NV_E5M2).x; });
    from_code("e4m3 -> f32", 8, [](u32 x) { return cast<u32>(wide(x, __NV_E4M3)); });
    from_code("e5m2 -> f32", 8, [](u32 x) { return cast<u32>(wide(x, __NV_E5M2)); });
    from_code("e4m3x2 -> f16x2", 16, [](u32 x) { return pair_bits(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)x, __NV_E4M3)); });
    from_code("e5m2x2 -> f16x2", 16, [](u32 x) { return pair_bits(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)x, __NV_E5M2)); });
    from_code("f16x2 -> e4m3x2", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw2_to_fp8x2(pair(x), __NV_SATFINITE, __NV_E4M3); });
    from_code("f16x2 -> e5m2x2", 16, [](u32 x) -> u32 { return __nv_cvt_halfraw2_to_fp8x2(pair(x), __NV_SATFINITE, __NV_E5M2); });
}
