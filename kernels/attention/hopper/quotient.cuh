// Quotients for codes: x / scale as a division rounds it, by scale's inverse. Values of 16 bits lie on ties between codes, and their product with the inverse next to them.
#pragma once
#include "ptx.cuh"

// inverse: 1 / scale, rounded to nearest.
WS_DEV float divided(float x, float scale, float inverse) {
    const float y = x * inverse;
    return fmaf(fmaf(-y, scale, x), inverse, y);
}
