// Threads that gather a large batch together.
//
// Started by the first call that wants them, asleep between calls, joined with their owner. They take no signals and
// know neither the lock nor a lease: their caller, who has one, waits for them. A forked child has none of them; there
// their owner's arena says so, and all that the child may do with the object is to destroy it.
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
  static constexpr size_t kWorthBytes = size_t{1} << 20;  // of rows: below that, waking them takes as long as they save

  explicit GatherThreads(const Arena& arena, size_t worth_bytes = kWorthBytes) noexcept;
  ~GatherThreads();
  GatherThreads(const GatherThreads&) = delete;
  GatherThreads& operator=(const GatherThreads&) = delete;

  // As gather(), by the caller and up to num_threads - 1 others; fewer, if the system gives no more. The caller
  // gathers heap and packed columns alone.
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
