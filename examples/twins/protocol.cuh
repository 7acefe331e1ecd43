// The protocol's memory as CUDA C++ sees it: parameters, places in the symmetric region, flags. Written by hand from `device/src`;
// `tests/twins.rs` compares the sizes and offsets below with the Rust side's.
#pragma once
#include <cstddef>
#include <cstdint>

using u32 = uint32_t;
using u64 = uint64_t;

struct Layout {
    u32 world, channels, signals, line_channels;
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
    u64 elements, rows, cols, chunk, kernel, share, own_share, outputs, output_offset;
    u32 channels, diagonal, send_peer, recv_peer, phase, allocation;
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
static_assert(sizeof(Layout) == 32, "layout");
static_assert(sizeof(Mapped) == 56, "mapped");
static_assert(sizeof(Control) == 24, "control");
static_assert(sizeof(Shape) == 96, "shape");
static_assert(sizeof(Params) == 208, "params");
static_assert(offsetof(Mapped, own) == 40 && offsetof(Mapped, bases) == 48, "mapped");
static_assert(offsetof(Shape, outputs) == 56 && offsetof(Shape, channels) == 72, "shape");
static_assert(offsetof(Params, control) == 56 && offsetof(Params, shape) == 80, "params");
static_assert(offsetof(Params, input) == 176 && offsetof(Params, output) == 192, "params");

// Elements of two bytes; chunks are whole packs.
constexpr u32 LANES = 8;
constexpr u64 LINE = 128;
constexpr u64 HEADER = 128;
constexpr u64 LINE_PACKS = 2048;
constexpr u64 LINE_HEADER = LINE_PACKS * 32;
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
    return state_at(l, l.world, 0) + 16 * (peer * 2 * u64(l.line_channels) + channel);
}
__device__ __forceinline__ u64 lines_at(const Layout &l, u32 writer, u32 channel) {
    return up(line_state_at(l, l.world, 0), 4096) + 2 * BUFFER * (writer * 2 * u64(l.line_channels) + channel);
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
