// The factor of scores on Hopper. Knows nothing of where scales lie. Limit: scales below 0 are not supported, as a maximum would have to be a minimum.
#pragma once
#include "ptx.cuh"

// The product of scales that scores are multiplied by. Where it is exactly 0 all keys weigh the same, but minus infinity, a masked key's score, times 0
// is no number: so it becomes a factor too small to tell scores apart. An addition, which becomes part of the product, as a choice cost forward.cu 2%
// (ptxas arranged its loop's registers otherwise).
WS_DEV float score_factor(float c) { return c + 1e-30f; }
