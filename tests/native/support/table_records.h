// What several tests ask of a table: to delete items, and its record.
#pragma once

#include "support/fixtures.h"

namespace shmreplay::test {

inline uint32_t erase(World& w, std::vector<int64_t> keys, uint32_t table = 0) {
  uint32_t deleted = 0;
  CHECK_EQ(delete_items(w.arena, w.table(table), keys.data(), static_cast<uint32_t>(keys.size()), kNow, deleted),
           Status::kOk);
  return deleted;
}

inline const TableRecord& record(World& w, uint32_t table = 0) { return *w.table(table).record; }

}  // namespace shmreplay::test
