//! The kernels of the self-test, as PTX by hand.

/// Plain kernels and one global variable, for any device from compute capability 8.0 on.
pub const PTX: &str = r"
.version 7.0
.target sm_80
.address_size 64

.visible .global .align 8 .u64 mailbox = 7;
.extern .shared .align 16 .b8 dynamic[];

// Adds 1 to each of `count` 32-bit words.
.visible .entry add_one(.param .u64 p_data, .param .u32 p_count)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_data];
    ld.param.u32 %r1, [p_count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.u32 %r2, [%rd3];
    add.u32 %r2, %r2, 1;
    st.u32 [%rd3], %r2;
DONE:
    ret;
}

// Waits until the flag is not 0, at most `limit` nanoseconds.
.visible .entry spin(.param .u64 p_flag, .param .u64 p_limit)
{
    .reg .pred %p;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [p_flag];
    ld.param.u64 %rd2, [p_limit];
    mov.u64 %rd3, %globaltimer;
LOOP:
    ld.acquire.sys.u64 %rd4, [%rd1];
    setp.ne.u64 %p, %rd4, 0;
    @%p bra DONE;
    mov.u64 %rd5, %globaltimer;
    sub.u64 %rd6, %rd5, %rd3;
    setp.lt.u64 %p, %rd6, %rd2;
    @%p bra LOOP;
DONE:
    ret;
}

// Takes 42 through dynamic shared memory at `offset` to `out`.
.visible .entry through_shared(.param .u64 p_out, .param .u32 p_offset)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_out];
    ld.param.u32 %r1, [p_offset];
    mov.u64 %rd2, dynamic;
    cvt.u64.u32 %rd3, %r1;
    add.u64 %rd2, %rd2, %rd3;
    mov.u32 %r2, 42;
    st.volatile.shared.u32 [%rd2], %r2;
    ld.volatile.shared.u32 %r3, [%rd2];
    st.u32 [%rd1], %r3;
    ret;
}
";

/// A kernel that tells each block's rank in its cluster, from compute capability 9.0 on.
pub const CLUSTER_PTX: &str = r"
.version 7.8
.target sm_90
.address_size 64

.visible .entry cluster_rank(.param .u64 p_out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.u32 [%rd3], %r2;
    ret;
}
";

/// What the compiler must refuse, naming line 6.
pub const BROKEN_PTX: &str = "\
.version 7.0
.target sm_80
.address_size 64
.visible .entry broken()
{
    frobnicate.u32 %r1, %r2;
    ret;
}
";
