#include "read/gather_threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

namespace shmreplay {
namespace {

constexpr uint32_t kLeastBlock = 4;      // items that a thread takes at once, at least
constexpr uint32_t kBlocksOfThread = 4;  // about; a thread that is held up leaves the rest to the others

// Blocks all signals for a moment, so that new threads start with them blocked and none is delivered there.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Columns that one thread gathers alone: values of a heap column are appended in the items' order, and a packed column
// has one reader.
bool is_for_one(const OutputBuffer& out) noexcept {
  return out.bytes != nullptr || out.packed != nullptr || out.flags == kPerItemColumn;
}

}  // namespace

struct GatherThreads::Shared {
  std::mutex mutex;
  std::condition_variable begun, ended;
  const Work* work = nullptr;  // of the call under way
  uint32_t wanted = 0;         // threads that may still join it
  uint32_t busy = 0;           // threads that joined it and work
  bool closing = false;
  std::exception_ptr error;  // the first that work threw
};

GatherThreads::GatherThreads(const Arena& arena, size_t worth_bytes) noexcept
    : arena_(arena), worth_bytes_(worth_bytes) {}

GatherThreads::~GatherThreads() {
  if (threads_.empty()) return;
  if (arena_.forked()) {
    // This is a forked child. It has none of the threads, and what they share may be in any state: it is left alone.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for three pointers the child ends here
    (void)new std::vector<std::thread>(std::move(threads_));
    (void)shared_.release();
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->begun.notify_all();
  for (std::thread& t : threads_) t.join();
}

void GatherThreads::serve(Shared& shared) noexcept {
  pthread_setname_np(pthread_self(), "sr-gather");
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.begun.wait(lock, [&] { return shared.closing || shared.wanted > 0; });
    if (shared.closing) return;
    --shared.wanted;
    ++shared.busy;
    const Work& work = *shared.work;
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (shared.error == nullptr) shared.error = error;
    if (--shared.busy == 0) shared.ended.notify_one();
  }
}

void GatherThreads::start(uint32_t num_threads) {
  const SignalsBlocked blocked;
  if (shared_ == nullptr) shared_ = std::make_unique<Shared>();
  threads_.reserve(num_threads);
  try {
    while (threads_.size() < num_threads) threads_.emplace_back([shared = shared_.get()] { serve(*shared); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do the work.
  }
}

// The caller does the work, with the threads that wake in the meantime.
void GatherThreads::run(uint32_t num_threads, const Work& work) {
  if (threads_.size() + 1 < num_threads) start(num_threads - 1);
  Shared& shared = *shared_;
  {
    const std::lock_guard lock(shared.mutex);
    shared.work = &work;
    shared.wanted = std::min(num_threads - 1, num_started());
    shared.error = nullptr;
  }
  shared.begun.notify_all();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_lock lock(shared.mutex);
  shared.wanted = 0;
  shared.ended.wait(lock, [&] { return shared.busy == 0; });
  shared.work = nullptr;
  if (error == nullptr) error = std::exchange(shared.error, nullptr);
  if (error != nullptr) std::rethrow_exception(error);
}

void GatherThreads::gather(uint32_t num_threads, const PatternCache& patterns, const Pick* picks, uint32_t n,
                           const Run* runs, int64_t first, std::vector<OutputBuffer>& outputs) {
  size_t bytes = 0;
  for (const OutputBuffer& out : outputs) bytes += is_for_one(out) ? 0 : size_t{n} * out.rows * out.row_bytes;
  num_threads = std::min({num_threads, kMost, n / kLeastBlock});
  if (num_threads < 2 || bytes < worth_bytes_)
    return shmreplay::gather(arena_, patterns, picks, n, runs, first, outputs);
  std::mutex masks;
  std::vector<OutputBuffer> together, alone;
  for (const OutputBuffer& out : outputs) {
    (is_for_one(out) ? alone : together).push_back(out);
  }
  for (OutputBuffer& out : together) out.mask_lock = &masks;
  const uint32_t block = std::max(kLeastBlock, n / (num_threads * kBlocksOfThread));
  std::atomic<uint32_t> next{0};
  run(num_threads, [&] {
    // Relaxed: the threads share only this number. What they wrote is seen once run() has waited for them.
    for (uint32_t i = next.fetch_add(block, std::memory_order_relaxed); i < n;
         i = next.fetch_add(block, std::memory_order_relaxed)) {
      shmreplay::gather(arena_, patterns, picks + i, std::min(block, n - i), runs, first + i, together);
    }
  });
  shmreplay::gather(arena_, patterns, picks, n, runs, first, alone);
}

}  // namespace shmreplay
