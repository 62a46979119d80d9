#include "read/draw_room.h"

#include <algorithm>
#include <new>

namespace shmreplay {

bool DrawRoom::begin(std::vector<OutputBuffer>& outputs, ItemValues* brought) noexcept try {
  places_.clear();
  for (OutputBuffer& out : outputs) {
    if (out.flags == kPerItemColumn) continue;
    out.mask->reserve(static_cast<size_t>(out.num_items) * out.rows);
    if (out.bytes != nullptr) places_.push_back({out.bytes, &out, 0, 0, 0});
  }
  if (brought != nullptr) places_.push_back({&brought->bytes, nullptr, 0, 0, 0});
  return true;
} catch (const std::exception&) {  // bad_alloc, or a length that no vector has
  return false;
}

void DrawRoom::begin_part() noexcept {
  for (Place& p : places_) p.size = p.bytes->size(), p.promised = 0;
  refused_ = false;
}

bool DrawRoom::promise(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs,
                       BlockRef brought) {
  bool fits = true;
  for (Place& p : places_) {
    p.wanted = p.out != nullptr ? bytes_shown(arena, pattern, pick, runs, *p.out)
                                : static_cast<uint64_t>(std::max<int64_t>(size_of_value(arena, brought), 0));
    fits = fits && p.wanted <= p.bytes->room() && p.promised <= p.bytes->room() - p.wanted;
  }
  for (Place& p : places_) p.promised += fits ? p.wanted : 0;
  refused_ = !fits;
  return fits;
}

void DrawRoom::check_kept() const {
#ifdef SHMREPLAY_FAULTS
  for (const Place& p : places_) {
    if (p.bytes->size() != p.size + p.promised) corrupt("a gather appended other bytes than the draw had promised");
  }
#endif
}

bool DrawRoom::grow(uint32_t items) noexcept {
  return !refused_ || std::all_of(places_.begin(), places_.end(), [=](const Place& p) {
    return p.bytes->reserve(p.wanted * items) || p.bytes->reserve(p.wanted);
  });
}

}  // namespace shmreplay
