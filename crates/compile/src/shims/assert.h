// NVRTC declares assert, printf, memcpy and memset by itself; a release build defines NDEBUG.
