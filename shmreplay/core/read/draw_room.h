// Memory for what a draw takes out of its table. It is allocated before the draw: if memory ran out after it, the items
// would be lost.
//
// An item's rows say how many bytes its values have, and a call knows its items only once it draws. So the hold of the
// draw looks at the rows, and an item that there is no room for is not taken. The call then gets room for items like
// it, without the lock, and draws again.
#pragma once

#include "read/gather.h"

namespace shmreplay {

class DrawRoom {
 public:
  // Says where values go from now on: those of the heap columns that are shown, and those that items brought (nullptr:
  // nowhere). Allocates the masks' memory. false: there is no memory.
  bool begin(std::vector<OutputBuffer>& outputs, ItemValues* brought) noexcept;

  // Values go nowhere now: the buffers of the call before are gone.
  void forget() noexcept { places_.clear(); }

  // Begins a part. Nothing is promised any more: what was promised has been gathered.
  void begin_part() noexcept;

  // In a hold. Whether there is room for the item's values beside what is promised already. If so, promises it to them.
  bool promise(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs, BlockRef brought);

  // After the gather. Fault builds check that it appended exactly what was promised.
  void check_kept() const;

  // Without the lock. Gets room for the item whose promise was refused, if one was; if possible, for `items` items of
  // its size. false: there is no memory even for one.
  bool grow(uint32_t items) noexcept;

 private:
  struct Place {
    ByteBuffer* bytes;
    const OutputBuffer* out;          // nullptr: what items brought
    uint64_t size, promised, wanted;  // bytes: there when the part began; promised to its items; wanted by the last
                                      // item looked at
  };
  std::vector<Place> places_;
  bool refused_ = false;  // the last promise was refused
};

}  // namespace shmreplay
