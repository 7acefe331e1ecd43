// The transposing all-to-all by hand, straight into symmetric outputs: tiles of a warp through shared memory. The entry has the name and
// parameters of the one that `#[comm_kernel]` makes of `fused::transpose`. Chunks are of whole packs to a row.
#include "protocol.cuh"

// 32 rows of 64 elements, an odd number of words apart.
struct Tile {
    u32 words[32][33];
};

// Tiles `warp`, `warp + warps`, .. of the transpose of the `cols` x `rows` matrix at `from`, to `to`.
static __device__ __forceinline__ void transpose(Tile &tile, const uint16_t *from, u64 to, u64 rows, u64 cols, u32 warp, u32 warps) {
    constexpr u32 U = 64;
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
    const Shape &shape = p.shape;
    u32 world = m.layout.world, blocks = world == 1 ? 0 : shape.channels, channel = blockIdx.x, warps = blockDim.x / 32;
    Tile &tile = tiles[threadIdx.x / 32];
    const uint16_t *input = reinterpret_cast<const uint16_t *>(p.input.address);
    if (channel >= blocks) {
        u32 part = channel - blocks;
        u64 own = m.rank * shape.elements;
        return transpose(tile, input + own, p.output.address + 2 * own, shape.rows, shape.cols, part * warps + threadIdx.x / 32, shape.self_copy * warps);
    }
    Doors doors(p, channel);
    u64 base = reinterpret_cast<const volatile u64 *>(shape.outputs)[to_of(m.rank, world, 1)];
    doors.open();
    for (u32 k = 1; k < world; k++) {
        u32 peer = to_of(m.rank, world, k);
        if (k > 1) base = reinterpret_cast<const u64 *>(shape.outputs)[peer];
        u64 at = base + shape.output_offset + 2 * (m.rank * shape.elements);
        transpose(tile, input + peer * shape.elements, at, shape.rows, shape.cols, channel * warps + threadIdx.x / 32, shape.channels * warps);
    }
    doors.close();
}
