// What the compiler calls in code that is compiled with -fsanitize=thread. ThreadSanitizer's own library is not linked.
#include <cstddef>
#include <cstdint>

#include "explorer/machine.h"

using shmreplay::explorer::running;
using shmreplay::explorer::step;

namespace {

void access(const void* at, size_t bytes, bool writes) {
  if (running() != nullptr) step(at, bytes, writes, writes ? "writes" : "reads");
}

void before(const volatile void* at, size_t bytes, bool writes, const char* does) {
  if (running() != nullptr) step(const_cast<const void*>(at), bytes, writes, does);
}

void after(const volatile void* at, uint64_t value) {
  if (running() != nullptr) shmreplay::explorer::stored(const_cast<const void*>(at), value);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* at, size_t bytes) { access(at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { access(at, bytes, true); }

#define ACCESS(n)                                                   \
  void __tsan_read##n(void* at) { access(at, n, false); }           \
  void __tsan_write##n(void* at) { access(at, n, true); }           \
  void __tsan_unaligned_read##n(void* at) { access(at, n, false); } \
  void __tsan_unaligned_write##n(void* at) { access(at, n, true); } \
  void __tsan_volatile_read##n(void* at) { access(at, n, false); }  \
  void __tsan_volatile_write##n(void* at) { access(at, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// One process runs at a time, so the weakest order does for the operation itself.
#define UPDATE(bits, name)                                                                          \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t v, int) { \
    before(at, bits / 8, true, #name);                                                              \
    return __atomic_##name(at, v, __ATOMIC_RELAXED);                                                \
  }
#define EXCHANGE_IF(bits, kind)                                                                            \
  int __tsan_atomic##bits##_compare_exchange_##kind(volatile uint##bits##_t* at, uint##bits##_t* expected, \
                                                    uint##bits##_t v, int, int) {                          \
    before(at, bits / 8, true, "compare_exchange");                                                        \
    return __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);        \
  }
#define ATOMIC(bits)                                                                                  \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {                 \
    before(at, bits / 8, false, "loads");                                                             \
    return __atomic_load_n(at, __ATOMIC_RELAXED);                                                     \
  }                                                                                                   \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t v, int) {              \
    before(at, bits / 8, true, "stores");                                                             \
    __atomic_store_n(at, v, __ATOMIC_RELAXED);                                                        \
    after(at, v);                                                                                     \
  }                                                                                                   \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* at, uint##bits##_t v, int) { \
    before(at, bits / 8, true, "exchange");                                                           \
    return __atomic_exchange_n(at, v, __ATOMIC_RELAXED);                                              \
  }                                                                                                   \
  UPDATE(bits, fetch_add)                                                                             \
  UPDATE(bits, fetch_sub)                                                                             \
  UPDATE(bits, fetch_and)                                                                             \
  UPDATE(bits, fetch_or)                                                                              \
  UPDATE(bits, fetch_xor)                                                                             \
  UPDATE(bits, fetch_nand)                                                                            \
  EXCHANGE_IF(bits, strong)                                                                           \
  EXCHANGE_IF(bits, weak)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

}  // extern "C"
