/* The C interface of fusewire. Made from the source by `FUSEWIRE_BLESS=1 cargo test -p fusewire-capi --test header`.
 *
 * Pointers are valid and of the objects that they say, strings end with a zero byte, and an object is not used while or after it is freed.
 * Objects may be used by several threads. What is collective is called by every rank, in the same order. Each function says what it did by a
 * status; `fusewire_last_error` of the same thread has the words and the fields.
 */

#ifndef FUSEWIRE_H
#define FUSEWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this interface: a library and its caller have the same.
#define FUSEWIRE_ABI 1

// For `to` and `from`: nobody.
#define FUSEWIRE_NOBODY -1

// For `ll128_channels` and `ll_channels`: without that protocol.
#define FUSEWIRE_NO_LL128 UINT32_MAX

// Bytes of an id.
#define FUSEWIRE_UNIQUE_ID_BYTES 128

// How a call ended.
typedef enum {
  // As it should.
  FUSEWIRE_OK = 0,
  // The caller asked for something that cannot be; nothing was done.
  FUSEWIRE_MISUSE = 1,
  // A kernel ended before its work was done: a wait expired, it panicked, a peer launched something else, a rank aborted.
  FUSEWIRE_FAULT = 2,
  // Ranks disagree, are missing, or did not come in time.
  FUSEWIRE_PEER = 3,
  // A rank died.
  FUSEWIRE_LOST = 4,
  // CUDA, an adapter or the operating system refused something.
  FUSEWIRE_DEVICE = 5,
  // The library has an error of its own.
  FUSEWIRE_BUG = 6,
} fusewire_status;

// What becomes of an argument.
typedef enum {
  // Elements that the kernel reads.
  FUSEWIRE_READ = 0,
  // Elements that it writes.
  FUSEWIRE_WRITE = 1,
  // Elements that it adds to.
  FUSEWIRE_ACCUMULATE = 2,
  // A value.
  FUSEWIRE_VALUE = 3,
  // Elements that it reads, and writes when they have been sent.
  FUSEWIRE_READ_WRITE = 4,
} fusewire_access;

// Types of elements and values.
typedef enum {
  // None of those below: a value of so many bytes.
  FUSEWIRE_OTHER = 0,
  // `uint8_t`.
  FUSEWIRE_U8 = 1,
  // `uint16_t`.
  FUSEWIRE_U16 = 2,
  // `uint32_t`.
  FUSEWIRE_U32 = 3,
  // `uint64_t`.
  FUSEWIRE_U64 = 4,
  // `int8_t`.
  FUSEWIRE_I8 = 5,
  // `int16_t`.
  FUSEWIRE_I16 = 6,
  // `int32_t`.
  FUSEWIRE_I32 = 7,
  // `int64_t`.
  FUSEWIRE_I64 = 8,
  // `float`.
  FUSEWIRE_F32 = 9,
  // `double`.
  FUSEWIRE_F64 = 10,
  // IEEE half precision.
  FUSEWIRE_F16 = 11,
  // bfloat16.
  FUSEWIRE_BF16 = 12,
  // 8-bit float with 4 bits of exponent, without infinities.
  FUSEWIRE_F8E4M3 = 13,
  // 8-bit float with 5 bits of exponent.
  FUSEWIRE_F8E5M2 = 14,
  // `size_t`.
  FUSEWIRE_USIZE = 256,
  // `ptrdiff_t`.
  FUSEWIRE_ISIZE = 257,
  // One byte, 0 or 1.
  FUSEWIRE_BOOL = 258,
} fusewire_type;

// How bytes travel.
typedef enum {
  // As the size says.
  FUSEWIRE_BY_SIZE = 0,
  // Through staging, with credits.
  FUSEWIRE_SIMPLE = 1,
  // In 128-byte lines that carry their flags.
  FUSEWIRE_LL128 = 2,
  // Straight into symmetric outputs.
  FUSEWIRE_DIRECT = 3,
  // The same by bulk copies.
  FUSEWIRE_BULK = 4,
  // The same by the copy engine.
  FUSEWIRE_COPY = 5,
  // All-reduces through staging twice: each rank folds a part, and passes it on.
  FUSEWIRE_TWO_SHOT = 6,
  // The same in 128-byte lines.
  FUSEWIRE_LL128_TWO_SHOT = 7,
  // In 8-byte words, of which half is a flag.
  FUSEWIRE_LL = 8,
  // Nowhere: of a rank alone, on a GPU.
  FUSEWIRE_LOCAL = 9,
  // Through staging within domains of a mesh and across them: all-reduces, all-gathers and reduce-scatters.
  FUSEWIRE_HIERARCHICAL = 10,
} fusewire_protocol;

// A kernel that was prepared on a transport.
typedef struct fusewire_launcher fusewire_launcher;

// A queue of launches that run in order.
typedef struct fusewire_stream fusewire_stream;

// Memory that every rank of a transport has, and that all can reach.
typedef struct fusewire_symmetric fusewire_symmetric;

// A transport.
typedef struct fusewire_transport fusewire_transport;

// The ranks of a job.
typedef struct fusewire_world fusewire_world;

// The last error of a thread. Numbers are -1 and strings empty where there is nothing to say.
typedef struct {
  // Which kind.
  fusewire_status status;
  // The whole of it in words.
  const char *message;
  // Fault: the rank that gave up first. Lost: that rank.
  int64_t rank;
  // Fault: the peer that it had to do with.
  int64_t peer;
  // Fault: the channel or the signal.
  int64_t channel;
  // Fault: the kernel that the rank had launched last.
  const char *kernel;
  // Fault: what the rank waited for, such as "data"; where it panicked; why it called `fusewire_transport_abort`; or how its launch
  // differs from that of another rank.
  const char *waited_for;
} fusewire_error;

// An argument of a kernel.
typedef struct {
  // Its name.
  const char *name;
  // What becomes of it.
  fusewire_access access;
  // Of elements: their type, `FUSEWIRE_OTHER` for structs, whose bytes a launch is given as `FUSEWIRE_U8`. Of a value: its type, or that of the
  // elements of an array.
  fusewire_type of;
  // Of a value: how many of the type it is, 1 for a number.
  size_t count;
  // Bytes of an element, or of the whole value.
  size_t size;
  // Whether a value may be left out: then its `data` is null.
  bool optional;
  // Whether any bytes of its size are known to be one: of elements, and of values that are elements (in Rust, structs with
  // `#[derive(Element)]` among them) or arrays of these. Of a `bool`, say, some bytes are no value.
  bool any_bytes;
} fusewire_field;

// A kernel for one element type, number, schedule and transport. Valid as long as the library is loaded.
typedef struct {
  // The module or the function.
  const char *name;
  // What a generic module was compiled for: "Bf16", "8" or "Bf16, 8"; else empty.
  const char *element;
  // The schedule, such as "all_to_all"; "custom" for a function.
  const char *schedule;
  // The transport, such as "Nvl".
  const char *transport;
  // What a launch takes, in order.
  const fusewire_field *fields;
  // How many fields there are.
  size_t field_count;
  // Its number, from 0.
  size_t number;
} fusewire_kernel;

// One argument of a launch.
typedef struct {
  // Elements: the address of the first, in memory of the transport's device. A value: where it is, in host memory.
  const void *data;
  // Elements: how many. A value: its bytes.
  size_t len;
  // Elements: their type; of structs `FUSEWIRE_U8`, and `len` is their bytes. Of a value it is not read.
  fusewire_type of;
} fusewire_value;

// What a launch is told beside its arguments; equal on all ranks but for `to` and `from`. 0 is the default of each.
typedef struct {
  // The root of a broadcast, scatter, gather or reduce.
  size_t root;
  // `sendrecv`: whom to send to, `FUSEWIRE_NOBODY` for nobody.
  int64_t to;
  // `sendrecv`: whom to receive from, `FUSEWIRE_NOBODY` for nobody.
  int64_t from;
  // Blocks of a schedule function.
  uint32_t blocks;
  // Elements of one peer's chunk; by default the output's (or the input's) divided by the ranks.
  size_t elements;
  // Rows of a chunk, with `cols`.
  size_t rows;
  // Columns of a chunk, with `rows`.
  size_t cols;
  // How bytes travel.
  fusewire_protocol protocol;
  // Channels to each peer.
  uint32_t channels;
  // Threads of a block.
  uint32_t threads;
  // Blocks in the grid at most.
  uint32_t most_blocks;
  // Bytes that travel together on a channel.
  size_t chunk;
  // How long one wait may last, in milliseconds.
  uint64_t deadline_ms;
} fusewire_call;

// How a transport is made; equal on all ranks. 0 is the default of each.
typedef struct {
  // Staging for each peer and direction, in bytes; 32 MiB.
  size_t per_peer_bytes;
  // Channels to each peer; 32.
  uint32_t channels;
  // Channels with buffers for LL128; 80. `FUSEWIRE_NO_LL128` is none.
  uint32_t ll128_channels;
  // Channels with buffers for LL; 64. `FUSEWIRE_NO_LL128` is none.
  uint32_t ll_channels;
  // How long one wait in a kernel may last, in milliseconds; 10,000.
  uint64_t deadline_ms;
} fusewire_transport_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The `FUSEWIRE_ABI` that the library was built with.
uint32_t fusewire_abi(void);

// The error of this thread's last call that did not end with `FUSEWIRE_OK`, or null. Valid until the thread's next such call.
const fusewire_error *fusewire_last_error(void);

// How many kernels the library has.
size_t fusewire_kernel_count(void);

// A kernel by its number; null if there is none.
const fusewire_kernel *fusewire_kernel_at(size_t number);

// Finds a kernel by its name, schedule, transport and element type; the last may be null or empty where there is one alone.
//
// `out` takes the kernel, which is not freed.
fusewire_status fusewire_kernel_find(const char *name,
                                     const char *schedule,
                                     const char *transport,
                                     const char *element,
                                     const fusewire_kernel **out);

// Prepares a kernel on a transport. Collective: all ranks prepare the same kernels in the same order.
//
// the kernel and the transport are of the same library, and `out` takes the launcher.
fusewire_status fusewire_launcher_new(const fusewire_kernel *kernel_,
                                      const fusewire_transport *transport,
                                      fusewire_launcher **out);

// Frees a launcher; what it has launched goes on.
void fusewire_launcher_free(fusewire_launcher *launcher);

// Queues one launch on a stream, with one value for each field, in order; `call` may be null. Waits for nothing.
//
// the launcher, the transport and the stream belong together. Elements stay valid until the stream has run the launch,
// and nobody else uses them before that, unless both only read. Values are of the types that the fields say.
fusewire_status fusewire_launch(const fusewire_launcher *launcher,
                                const fusewire_transport *transport,
                                const fusewire_stream *stream,
                                const fusewire_value *values,
                                size_t value_count,
                                const fusewire_call *call);

// Says in words how such a launch would be cut: at most `len` bytes at `text`, the last of them zero.
//
// As for `fusewire_launch`; there are `len` bytes at `text`.
fusewire_status fusewire_explain(const fusewire_launcher *launcher,
                                 const fusewire_transport *transport,
                                 const fusewire_value *values,
                                 size_t value_count,
                                 const fusewire_call *call,
                                 char *text,
                                 size_t len);

// A new stream for kernels of a transport.
//
// `out` takes the stream.
fusewire_status fusewire_stream_new(const fusewire_transport *transport, fusewire_stream **out);

// A stream of CUDA that somebody else made (`cudaStream_t` or `CUstream`; null is the legacy default stream), for kernels of a transport on
// GPUs. Work that is queued on it by whomever keeps its order, and a capture that somebody has begun on it records launches.
//
// `out` takes the stream. `raw` is valid until `fusewire_stream_free`, and over a capture of it.
fusewire_status fusewire_stream_wrap(const fusewire_transport *transport,
                                     void *raw,
                                     fusewire_stream **out);

// Its handle of CUDA; null for CPU threads.
void *fusewire_stream_raw(const fusewire_stream *stream);

// Waits for everything queued so far, `limit_ms` milliseconds at most; 0 is without limit. A fault of a kernel comes out here.
fusewire_status fusewire_stream_synchronize(const fusewire_stream *stream,
                                            uint64_t limit_ms);

// Lets go of it and waits for nothing. What is queued runs; what is queued when the process ends is lost.
void fusewire_stream_free(fusewire_stream *stream);

// Makes a transport by its name: "Shm" (CPU threads of one host) or "Nvl" (GPUs of one host). `options` may be null. Collective.
//
// `out` takes the transport.
fusewire_status fusewire_transport_open(const fusewire_world *world,
                                        const char *name,
                                        const fusewire_transport_options *options,
                                        fusewire_transport **out);

// Number of the GPU that its kernels run on; -1 for CPU threads.
int32_t fusewire_transport_device(const fusewire_transport *transport);

// Whether it can be used: `FUSEWIRE_FAULT` or `FUSEWIRE_LOST` until `fusewire_transport_renew`.
fusewire_status fusewire_transport_check(const fusewire_transport *transport);

// Makes it usable again after a fault. Waits for what this rank has queued on it. Collective.
fusewire_status fusewire_transport_renew(const fusewire_transport *transport);

// Ends every wait of its kernels, on this rank and on its peers, with `FUSEWIRE_FAULT`, this rank and `reason`: then it is to be renewed. From any
// thread, also while others wait for a stream or close it; it waits for nobody. What came first counts. `FUSEWIRE_PEER` if the peers cannot be told.
//
// `reason` is a string.
fusewire_status fusewire_transport_abort(const fusewire_transport *transport,
                                         const char *reason);

// Ends it: waits for what this rank has queued on it, then for every rank. Launchers of it refuse launches from here on. Collective.
fusewire_status fusewire_transport_close(const fusewire_transport *transport);

// Lets go of it without waiting for peers; launchers keep what they need of it.
void fusewire_transport_free(fusewire_transport *transport);

// Zeroed memory of `bytes` bytes on every rank, which all map. As an output it is stored to by peers directly: name it by its address.
// Collective: all ranks ask for as many bytes.
//
// `out` takes the memory.
fusewire_status fusewire_symmetric_new(const fusewire_transport *transport,
                                       size_t bytes,
                                       fusewire_symmetric **out);

// Its address.
uint8_t *fusewire_symmetric_address(const fusewire_symmetric *memory);

// Makes `stream` the next that uses it: what is queued there from here on, by whomever, runs behind launches that use it now; and it is given back, or
// used on another stream, behind what is queued on `stream` until then. Waits for nothing.
//
// the stream is of the memory's transport.
fusewire_status fusewire_symmetric_hand_to(const fusewire_symmetric *memory,
                                           const fusewire_stream *stream);

// Gives it back, behind what this rank has queued with it.
void fusewire_symmetric_free(fusewire_symmetric *memory);

// Meets the ranks that the same launcher started: torchrun, Open MPI, Slurm, or the variables `FUSEWIRE_RANK` and so on. Collective. Each
// collective may take `timeout_ms` milliseconds; 0 is one minute.
//
// `out` takes the world.
fusewire_status fusewire_world_from_env(uint64_t timeout_ms,
                                        fusewire_world **out);

// A world of this rank alone.
//
// `out` takes the world.
fusewire_status fusewire_world_single(fusewire_world **out);

// Makes an id, to be given to every rank by other means. This process then has the store in which they meet.
//
// `id` has room for `FUSEWIRE_UNIQUE_ID_BYTES`.
fusewire_status fusewire_unique_id(uint8_t *id);

// Meets the `size` ranks that have the same id. Collective.
//
// there are `FUSEWIRE_UNIQUE_ID_BYTES` at `id`, and `out` takes the world.
fusewire_status fusewire_world_connect(const uint8_t *id,
                                       size_t rank,
                                       size_t size,
                                       uint64_t timeout_ms,
                                       fusewire_world **out);

// The ranks with the same `color` as a world of their own, in the order of `key`. Collective.
//
// `out` takes the world.
fusewire_status fusewire_world_split(const fusewire_world *world,
                                     uint64_t color,
                                     uint64_t key,
                                     fusewire_world **out);

// This rank.
size_t fusewire_world_rank(const fusewire_world *world);

// Ranks.
size_t fusewire_world_size(const fusewire_world *world);

// This rank among those of its host.
size_t fusewire_world_local_rank(const fusewire_world *world);

// Gives the `len` bytes of `root` to every rank. Collective.
//
// there are `len` bytes at `bytes`, which all ranks but the root have overwritten.
fusewire_status fusewire_world_broadcast(const fusewire_world *world,
                                         size_t root,
                                         uint8_t *bytes,
                                         size_t len);

// Waits for every rank. Collective.
fusewire_status fusewire_world_barrier(const fusewire_world *world);

// Waits until every rank is done with the world, or is gone, and leaves it: the last call before `fusewire_world_free`. Collective.
fusewire_status fusewire_world_teardown(const fusewire_world *world);

// Leaves the world when its transports are gone too.
void fusewire_world_free(fusewire_world *world);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FUSEWIRE_H */
