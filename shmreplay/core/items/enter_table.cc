#include "items/enter_table.h"

#include "items/item_table.h"
#include "trees/reweigh.h"

namespace shmreplay {

Status enter_table(Hold& hold, const TableFacts& table, const Wait& wait) {
  for (bool helped = false;;) {
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    const uint32_t flags = table.record->flags.get();
    if (flags & kDropped) {
      hold.end();
      return Status::kClosed;
    }
    if (flags & kResetting) {
      reset_slice(hold, table);
    } else if (!helped && table.record->reweigh_left.get() > 0) {
      reweigh_slice(hold, table);
      helped = true;
    } else {
      return Status::kOk;
    }
    hold.end();
  }
}

}  // namespace shmreplay
