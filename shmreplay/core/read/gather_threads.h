// Threads that gather a large batch together.
//
// The first call that wants them starts them. They sleep between calls and are joined when their owner is destroyed.
// They take no signals, and know neither the lock nor a lease: the caller has the lease and waits for them. A forked
// child has none of them. There the owner's arena says that it is forked, and all that the child may do with the object
// is to destroy it.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "read/gather.h"

namespace shmreplay {

class GatherThreads {
 public:
  static constexpr uint32_t kMost = 64;
  static constexpr size_t kWorthBytes = size_t{1} << 20;  // of rows: below that, waking the threads takes as long as
                                                          // they save

  explicit GatherThreads(const Arena& arena, size_t worth_bytes = kWorthBytes) noexcept;
  ~GatherThreads();
  GatherThreads(const GatherThreads&) = delete;
  GatherThreads& operator=(const GatherThreads&) = delete;

  // Like gather(), by the caller and up to num_threads - 1 other threads; by fewer if the system gives no more. The
  // caller alone gathers heap, packed and per-item columns.
  void gather(uint32_t num_threads, const PatternCache& patterns, const Pick* picks, uint32_t n, const Run* runs,
              int64_t first, std::vector<OutputBuffer>& outputs);

  uint32_t num_started() const noexcept { return static_cast<uint32_t>(threads_.size()); }

 private:
  struct Shared;
  using Work = std::function<void()>;
  static void serve(Shared& shared) noexcept;
  void start(uint32_t num_threads);
  void run(uint32_t num_threads, const Work& work);

  const Arena& arena_;
  const size_t worth_bytes_;
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace shmreplay
