// Memory for what a draw takes out of its table, got before it is taken: afterwards want of memory would lose it.
//
// How many bytes an item's values have is told by its rows, which are its own only once it is drawn. So the hold of the
// draw looks at them: an item that there is no room for is not taken. The call gets room for its like without the lock,
// and draws anew.
#pragma once

#include "read/gather.h"

namespace shmreplay {

class DrawRoom {
 public:
  // Where values go from now on: those of the heap columns that are shown, and what items brought (nullptr: nowhere).
  // Masks get their memory. false: there is none.
  bool begin(std::vector<OutputBuffer>& outputs, ItemValues* brought) noexcept;

  // Values go nowhere: the buffers of the call before are gone.
  void forget() noexcept { places_.clear(); }

  // Nothing is promised: what was has been gathered.
  void begin_part() noexcept;

  // In a hold. Whether the item's values have room beside those promised, and promises it to them.
  bool promise(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs, BlockRef brought);

  // After the gather: fault builds look whether it appended what was promised.
  void check_kept() const;

  // Without the lock: room for the item whose promise was refused, if one was, and for so many of its like in all if
  // they can be had. false: there is none.
  bool grow(uint32_t items) noexcept;

 private:
  struct Place {
    ByteBuffer* bytes;
    const OutputBuffer* out;          // nullptr: what items brought
    uint64_t size, promised, wanted;  // bytes: there when the part began; of its items; of the item looked at last
  };
  std::vector<Place> places_;
  bool refused_ = false;  // the last promise
};

}  // namespace shmreplay
