#pragma once
// What every file has under nvcc, which includes the host's math.h before it, and NVRTC does not define.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
