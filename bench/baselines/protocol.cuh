// The protocol's memory as CUDA C++ sees it: parameters, places in the symmetric region, flags. Written by hand from `device/src`;
// `tests/baselines.rs` compares the sizes and offsets below with the Rust side's.
#pragma once
#include <cstddef>
#include <cstdint>

using u32 = uint32_t;
using u64 = uint64_t;

struct Layout {
    u32 world, channels, signals, ll128_channels, ll_channels, reserved;
    u64 window, heap;
};
struct Mapped {
    Layout layout;
    u32 rank, processes;
    u64 own, bases;
};
struct Control {
    u64 abort, record, deadline_ns;
};
struct Shape {
    u64 elements, rows, cols, chunk, kernel, share, own_share, first, outputs, output_offset, input, tiles;
    u32 channels, self_copy, phase, allocation;
    u64 cut;
};
struct Slice {
    u64 address, len;
};
struct Params {
    Mapped ops;
    Control control;
    Shape shape;
    Slice input, output;
};
static_assert(sizeof(Layout) == 40, "layout");
static_assert(sizeof(Mapped) == 64, "mapped");
static_assert(sizeof(Control) == 24, "control");
static_assert(sizeof(Shape) == 120, "shape");
static_assert(sizeof(Params) == 240, "params");
static_assert(offsetof(Mapped, own) == 48 && offsetof(Mapped, bases) == 56, "mapped");
static_assert(offsetof(Shape, outputs) == 64 && offsetof(Shape, channels) == 96, "shape");
static_assert(offsetof(Params, control) == 64 && offsetof(Params, shape) == 88, "params");
static_assert(offsetof(Params, input) == 208 && offsetof(Params, output) == 224, "params");

// Elements of two bytes; chunks are whole packs.
constexpr u32 LANES = 8;
constexpr u64 LINE = 128;
constexpr u64 HEADER = 128;
constexpr u64 LINE_PACKS = 12240;
constexpr u32 ROW_PACKS = 30;
constexpr u64 ROW = 512;
constexpr u64 LINE_HEADER = LINE_PACKS / ROW_PACKS * ROW;
constexpr u64 BUFFER = LINE_HEADER + 128;

__device__ __forceinline__ u64 up(u64 n, u64 to) { return (n + to - 1) / to * to; }

__device__ __forceinline__ u64 lines_each(const Layout &l) { return 2 * u64(l.channels) + l.signals; }
__device__ __forceinline__ u64 ready_line(const Layout &l, u32 writer, u32 channel) {
    return LINE * (1 + writer * lines_each(l) + channel);
}
__device__ __forceinline__ u64 free_line(const Layout &l, u32 writer, u32 channel) {
    return LINE * (1 + writer * lines_each(l) + l.channels + channel);
}
__device__ __forceinline__ u64 state_at(const Layout &l, u32 peer, u32 channel) {
    return LINE * (1 + l.world * lines_each(l) + peer * u64(l.channels + l.signals) + channel);
}
__device__ __forceinline__ u64 line_state_at(const Layout &l, u32 peer, u32 channel) {
    return state_at(l, l.world, 0) + 16 * (peer * 2 * u64(l.ll128_channels) + channel);
}
__device__ __forceinline__ u64 lines_at(const Layout &l, u32 writer, u32 channel) {
    return up(line_state_at(l, l.world, 0), 4096) + 2 * BUFFER * (writer * 2 * u64(l.ll128_channels) + channel);
}
__device__ __forceinline__ u64 staging_at(const Layout &l, u32 writer, u32 channel) {
    return up(lines_at(l, l.world, 0), 4096) + (writer * u64(l.channels) + channel) * l.window;
}

struct State {
    u64 sent, received;
};

__device__ __forceinline__ u64 base_of(const Mapped &m, u32 peer) { return reinterpret_cast<const u64 *>(m.bases)[peer]; }
__device__ __forceinline__ u64 kernel_at(u64 kernel, u64 at) { return kernel + at * 0x9e3779b97f4a7c15ull; }

__device__ __forceinline__ u64 load_acquire(u64 at) {
    u64 v;
    asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ void store_release(u64 at, u64 v) {
    asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ __forceinline__ void store_relaxed(u64 at, u64 v) {
    asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ __forceinline__ uint4 load_once(u64 at) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}
__device__ __forceinline__ void store(u64 at, uint4 v) { *reinterpret_cast<uint4 *>(at) = v; }
__device__ __forceinline__ uint4 load_line(u64 at) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ uint4 acquire_line(u64 at) {
    uint4 v;
    asm volatile("ld.acquire.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ void store_live(u64 at, uint4 v) {
    asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void store_line(u64 at, u32 a, u32 b, u64 flag) {
    asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(a), "r"(b), "r"(u32(flag)), "r"(u32(flag >> 32)) : "memory");
}

// Ours are launched so that they may be set up while the kernel before them runs; so are these.
__device__ __forceinline__ void follow() {
    asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory");
}

// A hand-written kernel would wait for ever; this one ends a hang after some seconds.
struct Patience {
    u32 turns = 0;
    __device__ __forceinline__ void spin() {
        if (++turns == 1u << 24) __trap();
    }
};

// With -DCHECKS the baselines do what ours do beside the work: they look at the abort word when they begin, know of threads that are gone at
// the end, and tell the block of it. What that costs is the difference of the two.
struct Checks {
#ifdef CHECKS
    u32 poison;
    __device__ __forceinline__ explicit Checks(const Control &control) {
        __shared__ u64 panic[6];
        if (threadIdx.x == 0) panic[0] = 0, panic[1] = blockIdx.x, panic[2] = control.abort, panic[3] = control.record, panic[4] = control.deadline_ns;
        asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(poison) : "l"(control.abort) : "memory");
        flag = panic;
    }
    const volatile u64 *flag;
    __device__ __forceinline__ void begin() const {
        if (poison) __trap();
    }
    __device__ __forceinline__ void sync(bool bad = false) const {
        if (__syncthreads_or(bad)) __trap();
    }
    __device__ __forceinline__ void end() const {
        sync();
        if (*flag) __trap();
    }
#else
    __device__ __forceinline__ explicit Checks(const Control &) {}
    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void sync() const { __syncthreads(); }
    __device__ __forceinline__ void end() const { __syncthreads(); }
#endif
};

__device__ __forceinline__ void until(u64 line, u64 target) {
    Patience patience;
    while (int64_t(load_acquire(line) - target) < 0) patience.spin();
}

// Part `part` of a chunk's packs.
struct Share {
    u64 first;
    u32 packs;
};
__device__ __forceinline__ Share share_of(u64 elements, u64 each, u32 part) {
    u64 packs = elements / LANES, first = min(each * part, packs);
    return {first, u32(min(packs - first, each))};
}

__device__ __forceinline__ u32 to_of(u32 rank, u32 world, u32 step) { return rank + step >= world ? rank + step - world : rank + step; }
__device__ __forceinline__ u32 from_of(u32 rank, u32 world, u32 step) { return step > rank ? rank + world - step : rank - step; }

// Copies packs, eight in flight for each thread, neighbouring threads side by side.
template <typename From, typename To> __device__ __forceinline__ void copy_packs(u32 count, From from, To to) {
    constexpr u32 U = 8;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 s = warp * U * 32 + lane; s < count; s += blockDim.x * U) {
        uint4 v[U];
#pragma unroll
        for (u32 k = 0; k < U; k++)
            if (s + 32 * k < count) v[k] = load_once(from(s + 32 * k));
#pragma unroll
        for (u32 k = 0; k < U; k++)
            if (s + 32 * k < count) store(to(s + 32 * k), v[k]);
    }
}

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

// *Go* and *done* of a block's channel with every peer, where the sender stores into the receiver's output: a lane for each step.
struct Doors {
    Checks checks;
    const Mapped &m;
    const Layout &l;
    u32 channel, to = 0, from = 0;
    bool has;
    u64 kernel, payload, output, sent = 0, received = 0, base_to = 0, base_from = 0;

    __device__ __forceinline__ Doors(const Params &p, u32 channel) : checks(p.control), m(p.ops), l(m.layout), channel(channel) {
        u32 step = 1 + threadIdx.x;
        has = step < l.world;
        kernel = p.shape.kernel, payload = 2 * p.shape.elements;
        output = u64(p.shape.allocation) << 44 | p.shape.output_offset;
        if (has) {
            to = to_of(m.rank, l.world, step), from = from_of(m.rank, l.world, step);
            sent = state(to)->sent, received = state(from)->received;
            // Asked for before the fence, behind which it is needed.
            const volatile u64 *bases = reinterpret_cast<const volatile u64 *>(m.bases);
            base_to = bases[to], base_from = bases[from];
        }
    }
    __device__ __forceinline__ volatile State *state(u32 peer) const {
        return reinterpret_cast<volatile State *>(m.own + state_at(l, peer, channel));
    }
    __device__ __forceinline__ u64 digest(u64 at) const {
        return (kernel_at(kernel, at) ^ payload * ODD ^ output * (ODD << 7 | 1)) + at;
    }
    __device__ __forceinline__ void say_go() const {
        if (has) announce(base_from + free_line(l, m.rank, channel), received + GO, digest(received), kernel_at(kernel, received), payload, output);
    }
    __device__ __forceinline__ void await_go() const {
        if (has) {
            checks.begin();
            hear(m.own + free_line(l, to, channel), sent + GO, digest(sent));
        }
    }
    __device__ __forceinline__ void open() const {
        say_go();
        await_go();
        checks.sync();
    }
    __device__ __forceinline__ void close() const {
        checks.end();
        if (has) {
            __threadfence_system();
            announce(base_to + ready_line(l, m.rank, channel), sent + DONE, digest(sent), kernel_at(kernel, sent), payload, output);
            hear(m.own + ready_line(l, from, channel), received + DONE, digest(received));
        }
        checks.sync();
        if (has) {
            state(to)->sent = sent + DONE;
            state(from)->received = received + DONE;
        }
    }
};
