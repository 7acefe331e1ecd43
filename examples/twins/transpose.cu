// The transposing all-to-all by hand, straight into symmetric outputs: tiles of a warp through shared memory. The entry has the name and
// parameters of the one that `#[comm_kernel]` makes of `fused::transpose`. Chunks are of whole packs to a row.
#include "protocol.cuh"

constexpr u64 ODD = 0xd6e8feb86659fd93ull;
constexpr u64 GO = 128, DONE = 256;

static __device__ __forceinline__ void announce(u64 at, u64 value, u64 digest, u64 kernel, u64 payload, u64 output) {
    store_relaxed(at + 32, kernel);
    store_relaxed(at + 40, payload);
    store_relaxed(at + 48, output);
    store_line(at + 16, u32(digest), u32(digest >> 32), value);
    store_relaxed(at, value);
}

static __device__ __forceinline__ void hear(u64 at, u64 target, u64 digest) {
    Patience patience;
    uint4 v;
    do {
        patience.spin();
        v = acquire_line(at + 16);
    } while (int64_t((v.z | u64(v.w) << 32) - target) < 0);
    if ((v.x | u64(v.y) << 32) != digest) __trap();
}

// 32 rows of 64 elements, an odd number of words apart.
struct Tile {
    u32 words[32][33];
};

// Tiles `warp`, `warp + warps`, .. of the transpose of the `cols` x `rows` matrix at `from`, to `to`.
static __device__ __forceinline__ void transpose(Tile &tile, const uint16_t *from, u64 to, u64 rows, u64 cols, u32 warp, u32 warps) {
    constexpr u32 U = 32;
    u32 lane = threadIdx.x % 32, down = u32((rows + 31) / 32), across = u32((cols + 63) / 64);
    uint16_t *own = reinterpret_cast<uint16_t *>(tile.words[lane]);
    for (u32 t = warp; t < down * across; t += warps) {
        u64 row = 32 * u64(t % down), col = 64 * u64(t / down);
        const uint16_t *at = from + col * rows + row + lane;
        u32 wide = u32(min(cols - col, u64(64)));
        if (row + lane < rows) {
            if (wide == 64) {
                for (u32 j = 0; j < 64; j += U) {
                    uint16_t v[U];
#pragma unroll
                    for (u32 k = 0; k < U; k++) v[k] = at[k * rows];
#pragma unroll
                    for (u32 k = 0; k < U; k++) own[j + k] = v[k];
                    at += U * rows;
                }
            } else {
                for (u32 j = 0; j < wide; j++) own[j] = at[j * rows];
            }
        }
        __syncwarp();
#pragma unroll 1
        for (u32 k = lane; k < 256; k += 32) {
            u32 i = k / 8, q = k % 8;
            if (row + i < rows && 8 * q < wide) {
                const u32 *w = &tile.words[i][4 * q];
                store(to + 2 * ((row + i) * cols + col + 8 * q), make_uint4(w[0], w[1], w[2], w[3]));
            }
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) transpose__all_to_all_direct__nvl(const __grid_constant__ Params p) {
    __shared__ Tile tiles[8];
    follow();
    const Mapped &m = p.ops;
    const Layout &l = m.layout;
    const Shape &shape = p.shape;
    u32 world = l.world, blocks = world == 1 ? 0 : shape.channels, channel = blockIdx.x, warps = blockDim.x / 32;
    Tile &tile = tiles[threadIdx.x / 32];
    const uint16_t *input = reinterpret_cast<const uint16_t *>(p.input.address);
    if (channel >= blocks) {
        u32 part = channel - blocks;
        u64 own = m.rank * shape.elements;
        return transpose(tile, input + own, p.output.address + 2 * own, shape.rows, shape.cols, part * warps + threadIdx.x / 32, shape.diagonal * warps);
    }
    u64 payload = 2 * shape.elements, output = u64(shape.allocation) << 44 | shape.output_offset;
    auto digest = [=](u64 at) { return (kernel_at(shape.kernel, at) ^ payload * ODD ^ output * (ODD << 7 | 1)) + at; };
    // A lane for each step.
    u32 step = 1 + threadIdx.x, to = 0, from = 0;
    bool has = step < world;
    u64 sent = 0, received = 0;
    if (has) {
        to = to_of(m.rank, world, step), from = from_of(m.rank, world, step);
        sent = reinterpret_cast<volatile State *>(m.own + state_at(l, to, channel))->sent;
        received = reinterpret_cast<volatile State *>(m.own + state_at(l, from, channel))->received;
        announce(base_of(m, from) + free_line(l, m.rank, channel), received + GO, digest(received), kernel_at(shape.kernel, received), payload, output);
        hear(m.own + free_line(l, to, channel), sent + GO, digest(sent));
    }
    __syncthreads();
    for (u32 k = 1; k < world; k++) {
        u32 peer = to_of(m.rank, world, k);
        u64 at = reinterpret_cast<const u64 *>(shape.outputs)[peer] + shape.output_offset + 2 * (m.rank * shape.elements);
        transpose(tile, input + peer * shape.elements, at, shape.rows, shape.cols, channel * warps + threadIdx.x / 32, shape.channels * warps);
    }
    __syncthreads();
    if (has) {
        __threadfence_system();
        announce(base_of(m, to) + ready_line(l, m.rank, channel), sent + DONE, digest(sent), kernel_at(shape.kernel, sent), payload, output);
        hear(m.own + ready_line(l, from, channel), received + DONE, digest(received));
    }
    __syncthreads();
    if (has) {
        reinterpret_cast<volatile State *>(m.own + state_at(l, to, channel))->sent = sent + DONE;
        reinterpret_cast<volatile State *>(m.own + state_at(l, from, channel))->received = received + DONE;
    }
}
