#pragma once
#if __has_include(<cuda/std/climits>)
#include <cuda/std/climits>
#else
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32767 - 1)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#ifdef _WIN64
#define LONG_MIN (-2147483647l - 1l)
#define LONG_MAX 2147483647l
#define ULONG_MAX 4294967295ul
#else
#define LONG_MIN (-9223372036854775807l - 1l)
#define LONG_MAX 9223372036854775807l
#define ULONG_MAX 18446744073709551615ul
#endif
#define LLONG_MIN (-9223372036854775807ll - 1ll)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#endif
