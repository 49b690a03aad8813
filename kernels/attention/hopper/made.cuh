// V^T that is made while it is read: transpose.cu's workers each make every so many tiles, in the order in which they are wanted, and say how many they have; a loader of V^T waits for the tiles it comes to.
//
// Counters, zero between launches: [0] is the reader's own (forward_work.cuh, kDrawn); [1] loaders that have ended; [2] workers that have; [3 + i] tiles of the i-th worker, of which there are a power of two. The last loader puts
// them back. Nobody waits for who may not have begun: the readers' launch begins once all workers run.
#pragma once
#include "params.cuh"

constexpr i32 kMadeEnds = 1, kMadeDone = 2, kMadeTiles = 3;

// Sections of heads one after the other; in one of them blocks of keys from last to first, as rows read them.
struct MadeOrder {
    i32 heads, section, blocks;

    WS_DEV_MEMBER void tile(i32 n, i32& head, i32& block) const {
        const i32 first = n / (section * blocks) * section, side = min(section, heads - first);
        n -= first * blocks;
        head = first + n % side;
        block = blocks - 1 - n / side;
    }
    // The place of a head's last block, and how much later each one before comes.
    WS_DEV_MEMBER i32 place(i32 head, i32& step) const {
        const i32 first = head / section * section;
        step = min(section, heads - first);
        return first * blocks + head - first;
    }
};

// A worker's tiles, one after the other, without a division but where a section of heads begins.
struct MadeWalk {
    MadeOrder order;
    i32 workers, n, total, head, block, first, side, heads_on, blocks_on;

    WS_DEV_MEMBER MadeWalk(const MadeOrder& order, i32 worker, i32 workers) : order(order), workers(workers), n(worker), total(order.heads * order.blocks) {
        if (more()) find();
    }
    WS_DEV_MEMBER void find() {
        order.tile(n, head, block);
        first = head / order.section * order.section, side = min(order.section, order.heads - first);
        heads_on = workers % side, blocks_on = workers / side;
    }
    WS_DEV_MEMBER bool more() const { return n < total; }
    WS_DEV_MEMBER void next() {
        n += workers, head += heads_on, block -= blocks_on;
        if (head >= first + side) head -= side, --block;
        if (block < 0 && more()) find();
    }
};

WS_DEV i32 made_so_far(const i32* counter) {
    i32 x;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(counter) : "memory");
    return x;
}

// So many tiles of a worker are stored, as this thread knows.
WS_DEV void made_say(i32* counters, i32 worker, i32 tiles) { asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(counters + kMadeTiles + worker), "r"(tiles) : "memory"); }

WS_DEV void made_end(i32* counters) { asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counters + kMadeDone) : "memory"); }
