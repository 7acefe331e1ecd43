// All-to-all of whole packs by hand: through staging, in lines that carry their flags, and straight into symmetric outputs. The entries have the names and parameters of
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
    u32 world = l.world, channels = p.shape.channels, ends = world == 1 ? 0 : (gridDim.x - p.shape.self_copy) / 2;
    if (blockIdx.x >= 2 * ends) return own_share(p, blockIdx.x - 2 * ends);
    bool sends = blockIdx.x < ends, leads = threadIdx.x == 0;
    // Several blocks of a channel share its peers.
    u32 end = sends ? blockIdx.x : blockIdx.x - ends, channel = end % channels;
    Share share = share_of(p.shape.elements, p.shape.share, channel);
    if (share.packs == 0) return;
    u64 payload = 16 * u64(share.packs), total = HEADER + up(payload, 128);
    u32 mask = u32(l.window - 1);
    for (u32 step = 1 + end / channels; step < world; step += ends / channels) {
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

// Rows of four lines: 30 packs, of which the eighth lanes of two neighbouring lines share one, and a flag in each line.
static __device__ __forceinline__ u32 across(u32 word) { return __shfl_xor_sync(~0u, word, 8); }

template <u32 U> static __device__ __forceinline__ void send_rows(u64 from, u64 out, u32 packs, u32 row, u32 rows, u32 slot, u64 fresh) {
    u32 lane = threadIdx.x % 32;
    uint4 v[U];
#pragma unroll
    for (u32 k = 0; k < U; k++) {
        u32 s = (row + k) * ROW_PACKS + slot;
        v[k] = make_uint4(0, 0, 0, 0);
        if (slot < ROW_PACKS && s < packs) v[k] = load_once(from + 16 * u64(s));
    }
#pragma unroll
    for (u32 k = 0; k < U; k++) {
        u32 x = across(v[k].z), y = across(v[k].w);
        if (lane % 8 == 7) {
            if (lane & 8) v[k].x = x, v[k].y = y;
            v[k].z = u32(fresh), v[k].w = u32(fresh >> 32);
        }
    }
#pragma unroll
    for (u32 k = 0; k < U; k++)
        if (row + k < rows) store_live(out + (row + k) * ROW + 16 * lane, v[k]);
}

template <u32 U> static __device__ __forceinline__ void take_rows(u64 in, u64 to, u32 packs, u32 row, u32 rows, u32 slot, u64 fresh) {
    u32 lane = threadIdx.x % 32;
    uint4 v[U];
    Patience patience;
    u64 differs;
    __syncwarp();
    do {
        differs = 0;
        patience.spin();
        // All are asked for before the first is looked at; rows past the end are the last one again.
#pragma unroll
        for (u32 k = 0; k < U; k++) v[k] = load_line(in + min(row + k, rows - 1) * ROW + 16 * lane);
#pragma unroll
        for (u32 k = 0; k < U; k++) differs |= lane % 8 == 7 ? (v[k].z | u64(v[k].w) << 32) ^ fresh : 0;
    } while (__any_sync(~0u, differs != 0));
#pragma unroll
    for (u32 k = 0; k < U; k++)
        if (row + k < rows) {
            u32 s = (row + k) * ROW_PACKS + slot, x = across(v[k].x), y = across(v[k].y);
            if (lane % 8 == 7) v[k].z = x, v[k].w = y;
            if (slot < ROW_PACKS && s < packs) store(to + 16 * u64(s), v[k]);
        }
}

// A team's rows of one channel in one call.
template <u32 U> struct Rows {
    u32 packs, rows, warp, warps, lane, slot;
    u64 fresh, header;
    u64 payload;

    __device__ __forceinline__ Rows(u32 lane, u32 lanes, u32 packs, u64 number, u64 kernel, u64 payload)
        : packs(packs), rows((packs + ROW_PACKS - 1) / ROW_PACKS), warp(lane / 32), warps(lanes / 32), lane(lane),
          fresh(flag_of(number, kernel, payload)), header(flag_of(number, kernel, 0)), payload(payload) {
        u32 line = threadIdx.x % 32 / 8, place = threadIdx.x % 8;
        slot = place < 7 ? 7 * line + place : line & 1 ? ROW_PACKS : 28 + line / 2;
    }
    __device__ __forceinline__ void send(u64 from, u64 out) const {
        if (rows <= warps) {
            if (warp < rows) send_rows<1>(from, out, packs, warp, rows, slot, fresh);
        } else {
            for (u32 row = warp * U; row < rows; row += warps * U) send_rows<U>(from, out, packs, row, rows, slot, fresh);
        }
        if (lane == 0) store_line(out + LINE_HEADER, u32(payload), u32(payload >> 32), header);
    }
    __device__ __forceinline__ void take(u64 in, u64 to) const {
        if (rows <= warps) {
            if (warp < rows) take_rows<1>(in, to, packs, warp, rows, slot, fresh);
        } else {
            for (u32 row = warp * U; row < rows; row += warps * U) take_rows<U>(in, to, packs, row, rows, slot, fresh);
        }
    }
};

extern "C" __global__ void __launch_bounds__(512, 1) copy__all_to_all_ll128__nvl(const __grid_constant__ Params p) {
    constexpr u32 U = 4;
    follow();
    const Mapped &m = p.ops;
    const Layout &l = m.layout;
    u32 world = l.world, blocks = world == 1 ? 0 : p.shape.channels, channel = blockIdx.x;
    if (channel >= blocks) return own_share(p, channel - blocks);
    Checks checks(p.control);
    volatile State *state = reinterpret_cast<volatile State *>(m.own + line_state_at(l, m.rank, channel));
    u64 number = state->sent + 1;
    Share share = share_of(p.shape.elements, p.shape.share, channel);
    u32 rows = (share.packs + ROW_PACKS - 1) / ROW_PACKS;
    // A team for each peer, as far as threads go.
    u32 peers = world - 1, width = 32 * max(rows, 1u);
    if (peers * width > blockDim.x) width = 32 * max((rows + U - 1) / U, 1u);
    u32 count = min(blockDim.x / width, peers);
    if (count <= 1) count = 1, width = blockDim.x;
    u32 team = threadIdx.x / width, lane = threadIdx.x % width;
    // One half sends and the other receives where there is much to do.
    bool sends = true, receives = true;
    if (count == 1 && share.packs > 8 * blockDim.x) {
        width = blockDim.x / 2, sends = lane < width, receives = !sends;
        if (receives) lane -= width;
    }
    Rows<U> lines(lane, width, share.packs, number, p.shape.kernel, 2 * p.shape.elements);
    u64 buffer = (number & 1) * BUFFER;
    for (u32 step = sends && team < count ? 1 + team : world; step < world; step += count) {
        u32 peer = to_of(m.rank, world, step);
        u64 out = base_of(m, peer) + lines_at(l, m.rank, channel) + buffer;
        lines.send(p.input.address + 2 * (peer * p.shape.elements) + 16 * share.first, out);
    }
    checks.begin();
    for (u32 step = receives && team < count ? 1 + team : world; step < world; step += count) {
        u32 peer = from_of(m.rank, world, step);
        u64 in = m.own + lines_at(l, peer, channel) + buffer;
        lines.take(in, p.output.address + 2 * (peer * p.shape.elements) + 16 * share.first);
    }
    checks.end();
    if (threadIdx.x == 0) state->sent = number;
}

// Straight into symmetric outputs.
extern "C" __global__ void __launch_bounds__(512, 1) copy__all_to_all_direct__nvl(const __grid_constant__ Params p) {
    follow();
    u32 world = p.ops.layout.world, blocks = world == 1 ? 0 : p.shape.channels, channel = blockIdx.x;
    if (channel >= blocks) return own_share(p, channel - blocks);
    Doors doors(p, channel);
    u64 base = reinterpret_cast<const volatile u64 *>(p.shape.outputs)[to_of(p.ops.rank, world, 1)];
    doors.open();
    Share share = share_of(p.shape.elements, p.shape.share, channel);
    for (u32 step = 1; step < world; step++) {
        u32 peer = to_of(p.ops.rank, world, step);
        if (step > 1) base = reinterpret_cast<const u64 *>(p.shape.outputs)[peer];
        u64 from = p.input.address + 2 * (peer * p.shape.elements) + 16 * share.first;
        u64 to = base + p.shape.output_offset + 2 * (p.ops.rank * p.shape.elements) + 16 * share.first;
        copy_packs(share.packs, [=](u32 s) { return from + 16 * u64(s); }, [=](u32 s) { return to + 16 * u64(s); });
    }
    doors.close();
}

// The same by bulk copies that one thread issues: peer after peer, one piece in every `stride` bytes, through eight stages of shared memory.
template <typename From> struct Pipe {
    static constexpr u32 STAGES = 8, BEHIND = 2, FIRST = STAGES - 2 * BEHIND, BARRIERS = 128;
    struct Cursor {
        u32 step, stage = 0, turn = 0;
        u64 at = 0;
    };
    u32 shared, piece, stride, end;
    u64 bytes;
    From from;
    Cursor first;

    __device__ __forceinline__ Pipe(u32 begin, u32 end, u64 bytes, u32 piece, u32 stride, From from)
        : piece(piece), stride(stride), end(bytes ? end : begin), bytes(bytes), from(from), first{begin} {
        extern __shared__ __align__(128) unsigned char stages[];
        shared = u32(__cvta_generic_to_shared(stages));
        if (!bytes) return;
        for (u32 k = 0; k < STAGES; k++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared + 8 * k) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
        for (u32 k = 0; k < FIRST; k++) load();
    }
    __device__ __forceinline__ u32 data(u32 stage) const { return shared + BARRIERS + stage * piece; }
    __device__ __forceinline__ u32 length(const Cursor &c) const { return u32(min(bytes - c.at, u64(piece))); }
    __device__ __forceinline__ void advance(Cursor &c) const {
        if ((c.at += stride) >= bytes) c.at = 0, c.step++;
        if (++c.stage == STAGES) c.stage = 0, c.turn++;
    }
    __device__ __forceinline__ void load() {
        if (first.step >= end) return;
        u32 n = length(first), barrier = shared + 8 * first.stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(data(first.stage)),
                     "l"(from(first.step) + first.at), "r"(n), "r"(barrier)
                     : "memory");
        advance(first);
    }
    template <typename To> __device__ __forceinline__ void run(u32 begin, To to) {
        u32 count = 0;
        for (Cursor c{begin}; c.step < end; count++) {
            u32 there = 0;
            while (!there)
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                             : "=r"(there)
                             : "r"(shared + 8 * c.stage), "r"(c.turn & 1)
                             : "memory");
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2; cp.async.bulk.commit_group;" ::"l"(to(c.step) + c.at), "r"(data(c.stage)),
                         "r"(length(c))
                         : "memory");
            advance(c);
            if (count >= BEHIND)
                asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
            else
                load();
            load();
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
};

// What chunks begin with goes in lines, which need no *go*, by the other warps of the blocks that copy the rank's own chunk.
extern "C" __global__ void __launch_bounds__(512, 1) copy__all_to_all_bulk__nvl(const __grid_constant__ Params p) {
    follow();
    const Mapped &m = p.ops;
    const Layout &l = m.layout;
    u32 world = l.world, rank = m.rank, blocks = world == 1 ? 0 : p.shape.channels, channel = blockIdx.x, piece = u32(p.shape.chunk);
    bool own = channel >= blocks, leads = threadIdx.x == 0;
    u32 part = own ? channel - blocks : channel, stride = piece * (own ? p.shape.self_copy : blocks);
    u64 each = 2 * p.shape.elements, at = u64(part) * piece + (own ? 0 : 16 * p.shape.first), bytes = at < each ? each - at : 0;
    u64 input = p.input.address + at, place = p.shape.output_offset + rank * each + at;
    const volatile u64 *outputs = reinterpret_cast<const volatile u64 *>(p.shape.outputs);
    if (own) {
        Checks checks(p.control);
        auto copy = [=] {
            if (leads) Pipe(0, 1, bytes, piece, stride, [=](u32) { return input + rank * each; }).run(0, [=](u32) { return p.output.address + rank * each + at; });
        };
        if (!p.shape.first) return copy();
        volatile State *state = reinterpret_cast<volatile State *>(m.own + line_state_at(l, rank, part));
        u64 number = state->sent + 1, begin = min(p.shape.own_share * part, p.shape.first);
        u32 packs = u32(min(p.shape.first - begin, p.shape.own_share));
        Rows<4> lines(threadIdx.x - 32, blockDim.x - 32, packs, number, p.shape.kernel, each);
        u64 buffer = (number & 1) * BUFFER;
        if (threadIdx.x < 32) {
            checks.begin();
            copy();
        } else {
            for (u32 step = 1; step < world; step++) {
                u32 peer = to_of(rank, world, step);
                lines.send(p.input.address + peer * each + 16 * begin, base_of(m, peer) + lines_at(l, rank, part) + buffer);
            }
            checks.begin();
            for (u32 step = 1; step < world; step++) {
                u32 peer = from_of(rank, world, step);
                lines.take(m.own + lines_at(l, peer, part) + buffer, p.output.address + peer * each + 16 * begin);
            }
        }
        checks.end();
        if (leads) state->sent = number;
        return;
    }
    Doors doors(p, channel);
    u64 first = outputs[to_of(rank, world, 1)];
    doors.say_go();
    auto from = [=](u32 step) { return input + to_of(rank, world, step) * each; };
    auto to = [=](u32 step) { return (step == 1 ? first : outputs[to_of(rank, world, step)]) + place; };
    if (world > 2) {
        // Several lanes wait, each for its peer; the pipes of all but the leader are empty.
        Pipe pipe(1, world, leads ? bytes : 0, piece, stride, from);
        doors.await_go();
        __syncthreads();
        pipe.run(1, to);
    } else if (leads) {
        Pipe pipe(1, world, bytes, piece, stride, from);
        doors.await_go();
        pipe.run(1, to);
    }
    doors.close();
}
