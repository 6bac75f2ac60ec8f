/* Check whether tensors are still at the same addresses and in the same layout.
 *
 * This file is compiled when an artifact is packed, and called before every call: see placement.py. The values that it
 * compares come from torch's stable C interface, for which a tensor is a pointer to an at::Tensor. Only the addresses
 * that it prefetches are guessed.
 */
#include <stdint.h>
#include <string.h>

typedef const void *Tensor;

int32_t aoti_torch_get_data_ptr(Tensor, void **);
int32_t aoti_torch_get_dtype(Tensor, int32_t *);
int32_t aoti_torch_get_dim(Tensor, int64_t *);
int32_t aoti_torch_get_sizes(Tensor, int64_t **);
int32_t aoti_torch_get_strides(Tensor, int64_t **);

enum { MOST_DIMENSIONS = 64, MOST_WORDS = 3 + 2 * MOST_DIMENSIONS };

/* Read address, dtype, number of dimensions, sizes and strides. Returns the number of words, or 0 on failure. */
static int64_t look(Tensor tensor, int64_t *seen) {
  void *address;
  int32_t dtype;
  int64_t dim, *sizes, *strides;
  if (aoti_torch_get_data_ptr(tensor, &address) || aoti_torch_get_dtype(tensor, &dtype) ||
      aoti_torch_get_dim(tensor, &dim) || dim > MOST_DIMENSIONS || aoti_torch_get_sizes(tensor, &sizes) ||
      aoti_torch_get_strides(tensor, &strides))
    return 0;
  seen[0] = (int64_t)(intptr_t)address;
  seen[1] = dtype;
  seen[2] = dim;
  for (int64_t i = 0; i < dim; i++) {
    seen[3 + i] = sizes[i];
    seen[3 + dim + i] = strides[i];
  }
  return 3 + 2 * dim;
}

/* Record the placement of all tensors, one after the other. Returns the number of words, or 0 if there is no room. */
int64_t note(const Tensor *tensors, int64_t count, int64_t *notes, int64_t room) {
  int64_t seen[MOST_WORDS], used = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t words = look(tensors[i], seen);
    if (!words || used + words > room)
      return 0;
    memcpy(notes + used, seen, words * sizeof *seen);
    used += words;
  }
  return used;
}

/* Returns 1 if all tensors are placed as recorded. Nothing is in the caches, so the memory is prefetched first. */
int64_t unchanged(const Tensor *tensors, int64_t count, const int64_t *notes) {
  int64_t seen[MOST_WORDS];
  for (int64_t i = 0; i < count; i++)
    __builtin_prefetch(tensors[i]);
  for (int64_t i = 0; i < count; i++) {
    const char *implementation = *(const char *const *)tensors[i];
    for (int line = 0; line < 3; line++)
      __builtin_prefetch(implementation + 64 * line);
  }
  /* Most likely a pointer to the storage. A wrong guess only makes the prefetch useless. */
  for (int64_t i = 0; i < count; i++)
    __builtin_prefetch((*(const void *const *const *)tensors[i])[2]);
  for (int64_t i = 0; i < count; i++) {
    int64_t words = look(tensors[i], seen);
    /* The numbers of dimensions are compared first: if they differ, the notes may have fewer words to compare. */
    if (!words || seen[2] != notes[2] || memcmp(seen, notes, words * sizeof *seen))
      return 0;
    notes += words;
  }
  return 1;
}
