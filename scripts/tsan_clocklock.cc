// Tells ThreadSanitizer about pthread_mutex_clocklock, which that of GCC 12 does not know: a lock taken so looks
// untaken to it, and every access under it like a race. Linked into the native tests of a thread-sanitized build only.
#include <cerrno>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>

extern "C" __attribute__((visibility("default"))) int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                                                              const timespec* until) noexcept {
  using ClockLock = int (*)(pthread_mutex_t*, clockid_t, const timespec*);
  static const auto real = reinterpret_cast<ClockLock>(dlsym(RTLD_NEXT, "pthread_mutex_clocklock"));
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  const int rc = real(mutex, clock, until);
  const bool is_held = rc == 0 || rc == EOWNERDEAD;
  __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | (is_held ? 0u : __tsan_mutex_try_lock_failed), 0);
  return rc;
}
