#include "items/news.h"

#include "base/futex.h"
#include "base/sleep_slice.h"
#include "items/enter_table.h"

namespace shmreplay {
namespace {

// Sleeps until there is a reason to look again. It reads without the lock, so what it reads are hints.
Status sleep(const TableRecord& t, News& news, uint32_t heard, uint64_t seen, int64_t since_ns, const Wait& wait) {
  for (;;) {
    if (const Status s = sleep_slice(news.futex, heard, kSliceNs, since_ns, wait); s != Status::kOk) return s;
    const bool woken = news.futex.load(std::memory_order_seq_cst) != heard;
    if (woken || num_inserts(t) > seen || (t.flags.get() & kDropped) != 0) return Status::kOk;
  }
}

}  // namespace

Status wait_for_insert(Arena& arena, const TableFacts& table, uint64_t seen, const Wait& wait, uint64_t& found) {
  TableRecord& t = *table.record;
  const int64_t since_ns = now_ns();
  for (;;) {
    uint32_t heard;
    {
      Hold hold(arena);
      if (const Status s = enter_table(hold, table, wait); s != Status::kOk) return s;
      found = num_inserts(t);
      if (found > seen) return Status::kOk;
      // SYNC POINT with Hold::collect_news. Both run under the lock, so the next hold that inserts sees is_awaited and
      // bumps the futex.
      heard = t.news.futex.load(std::memory_order_seq_cst);
      t.news.is_awaited.store(1, std::memory_order_relaxed);  // relaxed: read and written under the lock
      SHMREPLAY_FAULT("news.awaited");
    }
    if (const Status s = sleep(t, t.news, heard, seen, since_ns, wait); s != Status::kOk) return s;
  }
}

}  // namespace shmreplay
