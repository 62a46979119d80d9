// A robust process-shared mutex that nobody contends for, taken and given back.
#include <pthread.h>

#include <cstdint>

extern "C" {

// `memory`: shared, of at least a page. 0, or an errno.
int make_lock(void* memory) {
  pthread_mutexattr_t attributes;
  if (const int e = pthread_mutexattr_init(&attributes)) return e;
  if (const int e = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)) return e;
  if (const int e = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST)) return e;
  return pthread_mutex_init(static_cast<pthread_mutex_t*>(memory), &attributes);
}

int lock_and_unlock(void* memory, uint64_t n) {
  auto* lock = static_cast<pthread_mutex_t*>(memory);
  for (uint64_t i = 0; i < n; ++i) {
    if (const int e = pthread_mutex_lock(lock)) return e;
    if (const int e = pthread_mutex_unlock(lock)) return e;
  }
  return 0;
}

}  // extern "C"
