#pragma once
// NVRTC knows size_t by itself.
#if defined(_WIN64)
typedef long long ptrdiff_t;
#else
typedef long ptrdiff_t;
#endif
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
