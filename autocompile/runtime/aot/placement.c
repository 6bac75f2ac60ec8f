/* Whether tensors lie where they lay, laid out as they were.
 *
 * Compiled when an artifact is packed, and asked before every call: see placement.py. What it compares it has from
 * torch's stable C interface, for which a tensor is a pointer to an at::Tensor; only what it prefetches is guessed.
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

/* Address, dtype, number of dimensions, sizes and strides; returns how many words that is, or 0 if they can't be had. */
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

/* Writes down how they lie, one after the other; returns how many words that took, or 0 if there is no room. */
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

/* 1 if they still lie as was noted. All is cold in memory, so it is asked for first, as far as pointers lead. */
int64_t unchanged(const Tensor *tensors, int64_t count, const int64_t *notes) {
  int64_t seen[MOST_WORDS];
  for (int64_t i = 0; i < count; i++)
    __builtin_prefetch(tensors[i]);
  for (int64_t i = 0; i < count; i++) {
    const char *implementation = *(const char *const *)tensors[i];
    for (int line = 0; line < 3; line++)
      __builtin_prefetch(implementation + 64 * line);
  }
  /* Most likely its storage; a wrong guess costs nothing else. */
  for (int64_t i = 0; i < count; i++)
    __builtin_prefetch((*(const void *const *const *)tensors[i])[2]);
  for (int64_t i = 0; i < count; i++) {
    int64_t words = look(tensors[i], seen);
    /* As many dimensions as noted: before that is known, the notes may end sooner. */
    if (!words || seen[2] != notes[2] || memcmp(seen, notes, words * sizeof *seen))
      return 0;
    notes += words;
  }
  return 1;
}
