/* One rank of three: an all-reduce, an all-to-all by bytes, and what is refused. */

#include "fusewire.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1001 };

static void must(fusewire_status status) {
  if (status == FUSEWIRE_OK) return;
  fprintf(stderr, "status %d: %s\n", (int)status, fusewire_last_error()->message);
  exit(1);
}

static void check(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

int main(void) {
  fusewire_world *world;
  fusewire_transport *shm;
  fusewire_stream *stream;
  check(fusewire_abi() == FUSEWIRE_ABI, "version");
  must(fusewire_world_from_env(20000, &world));
  size_t rank = fusewire_world_rank(world), size = fusewire_world_size(world);
  check(size == 3, "size");
  const fusewire_transport_options options = {.per_peer_bytes = 1 << 18, .deadline_ms = 20000};
  must(fusewire_transport_open(world, "Shm", &options, &shm));
  check(fusewire_transport_device(shm) == -1, "device");
  must(fusewire_stream_new(shm, &stream));

  /* Sums. */
  const fusewire_kernel *kernel;
  fusewire_launcher *sum;
  must(fusewire_kernel_find("sum_f32", "all_reduce", "Shm", NULL, &kernel));
  check(kernel->field_count == 2 && strcmp(kernel->fields[0].name, "input") == 0, "fields");
  check(kernel->fields[1].access == FUSEWIRE_WRITE && kernel->fields[1].of == FUSEWIRE_F32, "output");
  must(fusewire_launcher_new(kernel, shm, &sum));
  float *input = aligned_alloc(64, 64 * 64), *output = aligned_alloc(64, 64 * 64);
  for (int i = 0; i < N; i++) input[i] = (float)(i + 1000 * (int)rank), output[i] = -1;
  fusewire_value values[] = {{input, N, FUSEWIRE_F32}, {output, N, FUSEWIRE_F32}};
  must(fusewire_launch(sum, shm, stream, values, 2, NULL));
  must(fusewire_stream_synchronize(stream, 0));
  for (int i = 0; i < N; i++) check(output[i] == (float)(3 * i + 3000), "sum");

  /* Symmetric memory is found by its address. */
  fusewire_symmetric *memory;
  fusewire_launcher *copy;
  must(fusewire_symmetric_new(shm, 3 * 64, &memory));
  unsigned char *all = fusewire_symmetric_address(memory), own[3 * 64];
  unsigned char *from = aligned_alloc(64, sizeof own);
  for (size_t i = 0; i < sizeof own; i++) from[i] = (unsigned char)(i + 50 * rank);
  must(fusewire_kernel_find("copy", "all_to_all", "Shm", "u8", &kernel));
  must(fusewire_launcher_new(kernel, shm, &copy));
  fusewire_value bytes[] = {{from, sizeof own, FUSEWIRE_U8}, {all, sizeof own, FUSEWIRE_U8}};
  char words[512];
  must(fusewire_explain(copy, shm, bytes, 2, NULL, words, sizeof words));
  const fusewire_call direct = {.protocol = FUSEWIRE_DIRECT};
  must(fusewire_launch(copy, shm, stream, bytes, 2, &direct));
  must(fusewire_stream_synchronize(stream, 10000));
  for (size_t p = 0; p < 3; p++)
    for (size_t i = 0; i < 64; i++) check(all[64 * p + i] == (unsigned char)(64 * rank + i + 50 * p), "all-to-all");

  /* What is refused is told, with fields, and nothing is done. */
  check(fusewire_kernel_find("copy", "all_to_all", "Shm", NULL, &kernel) == FUSEWIRE_MISUSE, "two of a name");
  check(strstr(fusewire_last_error()->message, "more than one kernel") != NULL, "which two");
  check(fusewire_kernel_find("cpoy", "all_to_all", "Shm", NULL, &kernel) == FUSEWIRE_MISUSE, "no kernel");
  check(fusewire_launch(sum, shm, stream, values, 1, NULL) == FUSEWIRE_MISUSE, "too few");
  check(strstr(fusewire_last_error()->message, "`input`, `output`") != NULL, "which fields");
  check(fusewire_launch(sum, shm, stream, bytes, 2, NULL) == FUSEWIRE_MISUSE, "another type");
  check(strstr(fusewire_last_error()->message, "argument `input`") != NULL, "which argument");
  check(fusewire_launch(NULL, shm, stream, bytes, 2, NULL) == FUSEWIRE_MISUSE, "null");
  check(fusewire_last_error()->rank == -1, "no rank");
  check(fusewire_transport_open(world, "Nvlink", NULL, NULL) == FUSEWIRE_MISUSE, "no transport");

  /* Rank 0 launches alone: its wait ends, and says for whom. */
  if (rank == 0) {
    fusewire_call soon = {.deadline_ms = 200};
    must(fusewire_launch(sum, shm, stream, values, 2, &soon));
    check(fusewire_stream_synchronize(stream, 0) == FUSEWIRE_FAULT, "a fault");
    const fusewire_error *error = fusewire_last_error();
    check(error->rank == 0 && error->peer > 0 && strlen(error->waited_for) > 0, "its fields");
  }
  must(fusewire_world_barrier(world));
  must(fusewire_transport_renew(shm));
  must(fusewire_launch(sum, shm, stream, values, 2, NULL));
  must(fusewire_stream_synchronize(stream, 0));

  /* Rank 0 launches alone once more: rank 2 ends its wait, or refuses the launch if it comes first. No rank may still
     be in the launch before. */
  must(fusewire_world_barrier(world));
  if (rank == 0) {
    fusewire_status ended = fusewire_launch(sum, shm, stream, values, 2, NULL);
    if (ended == FUSEWIRE_OK) ended = fusewire_stream_synchronize(stream, 0);
    check(ended == FUSEWIRE_FAULT, "aborted");
    const fusewire_error *error = fusewire_last_error();
    check(error->rank == 2 && strcmp(error->waited_for, "enough") == 0, "who and why");
  }
  if (rank == 2) must(fusewire_transport_abort(shm, "enough"));
  must(fusewire_world_barrier(world));
  check(fusewire_transport_abort(shm, NULL) == FUSEWIRE_MISUSE, "no reason");
  must(fusewire_transport_renew(shm));

  must(fusewire_symmetric_hand_to(memory, stream));
  fusewire_symmetric_free(memory);
  fusewire_launcher_free(copy);
  fusewire_launcher_free(sum);
  fusewire_stream_free(stream);
  must(fusewire_transport_close(shm));
  fusewire_transport_free(shm);
  must(fusewire_world_teardown(world));
  fusewire_world_free(world);
  free(input), free(output), free(from);
  return 0;
}
