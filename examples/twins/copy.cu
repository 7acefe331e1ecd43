// All-to-all of whole packs by hand: through staging, and in lines that carry their flags. The entries have the names and parameters of
// the ones that `#[comm_kernel]` makes of `fused::copy`, and work the same memory.
#include "protocol.cuh"

static __device__ __forceinline__ void own_share(const Params &p, u32 part) {
    Share share = share_of(p.shape.elements, p.shape.own_share, part);
    u64 at = 2 * (p.ops.rank * p.shape.elements) + 16 * share.first;
    u64 from = p.input.address + at, to = p.output.address + at;
    copy_packs(share.packs, [=](u32 s) { return from + 16 * u64(s); }, [=](u32 s) { return to + 16 * u64(s); });
}

extern "C" __global__ void __launch_bounds__(512, 1) copy__all_to_all__nvl(const __grid_constant__ Params p) {
    follow();
    const Mapped &m = p.ops;
    const Layout &l = m.layout;
    u32 world = l.world, ends = world == 1 ? 0 : p.shape.channels;
    if (blockIdx.x >= 2 * ends) return own_share(p, blockIdx.x - 2 * ends);
    bool sends = blockIdx.x < ends, leads = threadIdx.x == 0;
    u32 channel = sends ? blockIdx.x : blockIdx.x - ends;
    Share share = share_of(p.shape.elements, p.shape.share, channel);
    if (share.packs == 0) return;
    u64 payload = 16 * u64(share.packs), total = HEADER + up(payload, 128);
    u32 mask = u32(l.window - 1);
    for (u32 step = 1; step < world; step++) {
        u32 peer = sends ? to_of(m.rank, world, step) : from_of(m.rank, world, step);
        volatile State *state = reinterpret_cast<volatile State *>(m.own + state_at(l, peer, channel));
        u64 start = sends ? state->sent : state->received;
        u64 ring = sends ? base_of(m, peer) + staging_at(l, m.rank, channel) : m.own + staging_at(l, peer, channel);
        u64 chunk = 2 * (peer * p.shape.elements) + 16 * share.first;
        u64 waits = m.own + (sends ? free_line(l, peer, channel) : ready_line(l, peer, channel));
        u64 raises = base_of(m, peer) + (sends ? ready_line(l, m.rank, channel) : free_line(l, m.rank, channel));
        for (u64 from = 0; from < total; from += p.shape.chunk) {
            u64 to = min(total, from + p.shape.chunk);
            if (leads) until(waits, start + to - (sends ? l.window : 0));
            __syncthreads();
            u64 header = ring + (u32(start) & mask), name = kernel_at(p.shape.kernel, start);
            if (from == 0 && leads) {
                if (sends) {
                    store(header, make_uint4(u32(name), u32(name >> 32), u32(payload), u32(payload >> 32)));
                } else {
                    uint4 seen = load_once(header);
                    if ((seen.x | u64(seen.y) << 32) != name || (seen.z | u64(seen.w) << 32) != payload) __trap();
                }
            }
            u32 s0 = u32((max(from, HEADER) - HEADER) / 16), s1 = u32(min((max(to, HEADER) - HEADER) / 16, u64(share.packs)));
            u32 offset = u32(start) + u32(HEADER) + 16 * s0;
            auto staged = [=](u32 s) { return ring + ((offset + 16 * s) & mask); };
            u64 plain = (sends ? p.input.address : p.output.address) + chunk + 16 * u64(s0);
            auto flat = [=](u32 s) { return plain + 16 * u64(s); };
            if (sends)
                copy_packs(s1 - s0, flat, staged);
            else
                copy_packs(s1 - s0, staged, flat);
            __syncthreads();
            if (leads) store_release(raises, start + to);
        }
        if (leads) (sends ? state->sent : state->received) = start + total;
    }
}

static __device__ __forceinline__ u64 flag_of(u64 number, u64 kernel, u64 payload) {
    u64 mix = (kernel ^ payload * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
    return (number & 0xffffffffffffull) | (mix >> 48) << 48;
}

// The lines of pack `s`: a warp's first ones side by side, then its second ones.
static __device__ __forceinline__ u32 line_of(u32 s) { return 16 * ((s & ~31u) * 2 + (s & 31)); }

extern "C" __global__ void __launch_bounds__(512, 1) copy__all_to_all_lines__nvl(const __grid_constant__ Params p) {
    constexpr u32 U = 4;
    follow();
    const Mapped &m = p.ops;
    const Layout &l = m.layout;
    u32 world = l.world, blocks = world == 1 ? 0 : p.shape.channels, channel = blockIdx.x;
    if (channel >= blocks) return own_share(p, channel - blocks);
    volatile State *state = reinterpret_cast<volatile State *>(m.own + line_state_at(l, m.rank, channel));
    u64 number = state->sent + 1;
    Share share = share_of(p.shape.elements, p.shape.share, channel);
    // A team for each peer, as far as threads go.
    u32 peers = world - 1, width = 32 * max((share.packs + 31) / 32, 1u);
    if (peers * width > blockDim.x) width = 32 * max((share.packs + 127) / 128, 1u);
    u32 count = min(blockDim.x / width, peers);
    if (count <= 1) count = 1, width = blockDim.x;
    u32 team = threadIdx.x / width, lane = threadIdx.x % width;
    u64 payload = 2 * p.shape.elements, fresh = flag_of(number, p.shape.kernel, payload);
    u64 buffer = (number & 1) * BUFFER;
    u32 first = lane / 32 * (U * 32) + lane % 32, stride = width * U;
    for (u32 step = team < count ? 1 + team : world; step < world; step += count) {
        u32 peer = to_of(m.rank, world, step);
        u64 out = base_of(m, peer) + lines_at(l, m.rank, channel) + buffer;
        u64 from = p.input.address + 2 * (peer * p.shape.elements) + 16 * share.first;
        if (lane == 0) store_line(out + LINE_HEADER, u32(payload), u32(payload >> 32), flag_of(number, p.shape.kernel, 0));
        for (u32 s = first; s < share.packs; s += stride) {
            uint4 v[U];
#pragma unroll
            for (u32 k = 0; k < U; k++)
                if (s + 32 * k < share.packs) v[k] = load_once(from + 16 * u64(s + 32 * k));
#pragma unroll
            for (u32 k = 0; k < U; k++)
                if (s + 32 * k < share.packs) {
                    u64 at = out + line_of(s) + 1024 * k;
                    store_line(at, v[k].x, v[k].y, fresh);
                    store_line(at + 512, v[k].z, v[k].w, fresh);
                }
        }
    }
    for (u32 step = team < count ? 1 + team : world; step < world; step += count) {
        u32 peer = from_of(m.rank, world, step);
        u64 in = m.own + lines_at(l, peer, channel) + buffer;
        u64 to = p.output.address + 2 * (peer * p.shape.elements) + 16 * share.first;
        for (u32 s = first; s < share.packs; s += stride) {
            uint4 a[U], b[U];
            Patience patience;
            bool all;
            do {
                all = true;
                patience.spin();
#pragma unroll
                for (u32 k = 0; k < U; k++)
                    if (s + 32 * k < share.packs) {
                        u64 at = in + line_of(s) + 1024 * k;
                        a[k] = load_line(at), b[k] = load_line(at + 512);
                        all = all && (a[k].z | u64(a[k].w) << 32) == fresh && (b[k].z | u64(b[k].w) << 32) == fresh;
                    }
            } while (!all);
#pragma unroll
            for (u32 k = 0; k < U; k++)
                if (s + 32 * k < share.packs) store(to + 16 * u64(s + 32 * k), make_uint4(a[k].x, a[k].y, b[k].x, b[k].y));
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) state->sent = number;
}
