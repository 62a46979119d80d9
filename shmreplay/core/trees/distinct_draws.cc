#include "trees/distinct_draws.h"

#include <algorithm>
#include <bit>

namespace shmreplay {
namespace {

uint64_t mixed(uint64_t z) noexcept {  // splitmix64's
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void DistinctDraws::begin(const TableFacts& t, uint32_t n, const double* uniforms, Part part) {
  table_ = &t;
  uniforms_ = uniforms;
  part_ = part;
  left_only_ = ran_out_ = false;
  seen_seq_ = num_rejected_ = 0;
  drawn_.clear();
  drawn_.reserve(n);
  hash_.assign(std::bit_ceil(uint64_t{n} * 2), {kNone, 0});
  passed_.clear();
  // A call that wants much of its part meets many items of the other parts.
  const uint64_t others = part.is_all() ? 0 : kMostPassed + 2 * uint64_t{n} * part.world_size;
  most_passed_ = static_cast<uint32_t>(std::min<uint64_t>(others, t.capacity));
  passed_.reserve(most_passed_);
  const RoleLayout& role = t.roles[kSampler];
  if (role.dense != 0) sorted_.reserve(n + most_passed_);
  if (role.kind == kPrioritized) masked_.reserve(role.sum, n + most_passed_);
  if (role.heap != 0) stack_.reserve(3 * uint64_t{n} + 8);
  const bool wants_much = !part.is_all() && 4 * uint64_t{n} * part.world_size >= t.record->size.get();
  most_drawable_ = wants_much ? count_drawable() : UINT64_MAX;
}

// Visits items that may be drawn, until visit() answers false.
template <class Visit>
void DistinctDraws::each_in_share(Visit visit) {
  const Selector sampler(arena_, *table_, kSampler);
  const bool by_weight = sampler.by_weight();
  const uint64_t size = std::min<uint64_t>(table_->record->size.get(), table_->capacity);
  for (uint64_t i = 0; i < size; ++i) {
    const uint32_t g = sampler.dense_item(i);
    if (!part_.has(sampler.slot(g)) || (by_weight && !(sampler.tree().leaf(sampler.slot(g)) > 0))) continue;
    if (!visit(g)) return;
  }
}

uint64_t DistinctDraws::count_drawable() {
  if (part_.is_all()) return Selector(arena_, *table_, kSampler).num_drawable();
  uint64_t n = 0;
  each_in_share([&](uint32_t) { return ++n > 0; });
  return n;
}

// While there is room to remember more items, each hold brings the call nearer to its end.
bool DistinctDraws::may_have_left() {
  if (passed_.size() < most_passed_) return true;
  bool found = false;
  each_in_share([&](uint32_t g) {
    found = !is_drawn(g);
    return !found;
  });
  return found;
}

// The caller's number first. The numbers of repeated draws are derived from it.
double DistinctDraws::uniform(uint64_t draw, uint64_t attempt) const noexcept {
  const double given = uniforms_[draw];
  if (attempt == 0) return given;
  const uint64_t seed = mixed(std::bit_cast<uint64_t>(given) + draw * 0x9e3779b97f4a7c15);
  return static_cast<double>(mixed(seed + attempt * 0x9e3779b97f4a7c15) >> 11) * 0x1.0p-53;
}

DistinctDraws::Drawn& DistinctDraws::place(uint32_t g) {
  const uint64_t last = hash_.size() - 1;
  uint64_t at = mixed(g) & last;
  while (hash_[at].seq != 0 && hash_[at].item != g) at = (at + 1) & last;  // half of the places are empty
  return hash_[at];
}

bool DistinctDraws::is_drawn(uint32_t g) {
  const Drawn& drawn = place(g);
  return drawn.seq != 0 && drawn.seq == arena_.item(g).seq.get();
}

bool DistinctDraws::is_new(uint32_t g, const uint32_t* items, uint32_t n) {
  return part_.has(g - static_cast<uint32_t>(table_->item_base)) && std::find(items, items + n, g) == items + n &&
         !is_drawn(g);
}

uint32_t DistinctDraws::pick(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items) {
  const uint32_t kind = sampler.kind();
  const bool is_random = kind == kUniform || kind == kPrioritized;
  ran_out_ = false;
  if (is_random && !left_only_) {
    // Asks for as many items as the tries of one hold can find.
    const uint32_t n = pick_new(hold, sampler, std::min(want, std::max(1u, kGroup / part_.world_size)), items);
    if (n > 0) return n;
  }
  items[0] = is_random                        ? pick_left(sampler)
             : kind == kFifo || kind == kLifo ? next_in_order(kind == kFifo)
                                              : best_of_heap(sampler);
  return items[0] == kNone ? 0 : 1;
}

// Draws side by side, and draws again what is not new. Fewer than `want`: new items have become too rare.
uint32_t DistinctDraws::pick_new(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items) {
  double u[kGroup] = {};
  for (uint32_t i = 0; i < want; ++i) u[i] = uniform(drawn_.size() + i, 0);
  sampler.pick_group(hold, u, want, items);
  uint32_t tries = 0;
  for (uint32_t i = 0; i < want; ++i) {
    for (uint32_t attempt = 1; !is_new(items[i], items, i); ++attempt) {
      if (++tries > kTries) {
        left_only_ = true;
        return i;
      }
      items[i] = sampler.pick(hold, uniform(drawn_.size() + i, attempt));
    }
  }
  return want;
}

void DistinctDraws::take(const Hold&, uint32_t g, uint64_t seq) {
  place(g) = {g, seq};
  drawn_.push_back({g, seq});
  if (!left_only_ || seen_seq_ == 0) return;
  const Selector sampler(arena_, *table_, kSampler);
  if (arena_.item(g).seq.get() != seq) {
    seen_seq_ = 0;  // it was removed by its last sample, and other items changed places
  } else {
    leave_out(sampler, g);
  }
}

// Takes the item out of the data that pick_left() uses, which is up to date.
void DistinctDraws::leave_out(const Selector& sampler, uint32_t g) {
  if (seen_by_weight_) {
    masked_.mask(sampler.tree(), sampler.slot(g));
    return;
  }
  const uint32_t position = sampler.position(g);
  sorted_.insert(std::lower_bound(sorted_.begin(), sorted_.end(), position), position);
}

// Called when pick_left() met an item outside the part.
void DistinctDraws::pass_over(const Selector& sampler, uint32_t g) {
  ++num_rejected_;
  if (passed_.size() == most_passed_) return;
  passed_.push_back(g);
  leave_out(sampler, g);
}

// Brings the data that pick_left() uses up to date. Not needed if all holds since have been this call's own.
void DistinctDraws::refresh(const Selector& sampler, bool by_weight) {
  // Relaxed: this is our own hold's number, which we wrote. Another's hold in between shows as a gap.
  const uint64_t seq = arena_.lock().hold_seq.load(std::memory_order_relaxed);
  const bool alone = seen_seq_ != 0 && seq - seen_seq_ <= 2 && seen_by_weight_ == by_weight;
  seen_seq_ = seq;
  if (alone) return;
  seen_by_weight_ = by_weight;
  sorted_.clear();
  for (const Drawn& drawn : drawn_) {
    if (arena_.item(drawn.item).seq.get() != drawn.seq) continue;
    sorted_.push_back(by_weight ? sampler.slot(drawn.item) : sampler.position(drawn.item));
  }
  for (const uint32_t g : passed_) {
    if (by_weight) sorted_.push_back(sampler.slot(g));
    else if (arena_.item(g).seq.get() != 0) sorted_.push_back(sampler.position(g));
  }
  std::sort(sorted_.begin(), sorted_.end());
  if (by_weight) masked_.build(sampler.tree(), sorted_.data(), static_cast<uint32_t>(sorted_.size()));
}

uint32_t DistinctDraws::pick_left(const Selector& sampler) {
  const bool by_weight = sampler.by_weight();
  refresh(sampler, by_weight);
  for (uint32_t tries = 0; tries < kTries; ++tries) {
    const double u = uniform(drawn_.size(), kTries + 1 + num_rejected_);  // no earlier attempt used this number
    const uint32_t g = pick_any_left(sampler, u, by_weight);
    if (g == kNone || part_.has(sampler.slot(g))) return g;
    pass_over(sampler, g);
  }
  ran_out_ = true;
  return kNone;
}

uint32_t DistinctDraws::pick_any_left(const Selector& sampler, double u, bool by_weight) {
  if (!by_weight) return pick_rank(sampler, u);
  const SumTree tree = sampler.tree();
  if (!(masked_.total(tree) > 0)) return kNone;
  return static_cast<uint32_t>(table_->item_base) + masked_.draw(tree, u);
}

uint32_t DistinctDraws::pick_rank(const Selector& sampler, double u) {
  const uint64_t size = table_->record->size.get();
  if (sorted_.size() >= size) return kNone;
  const uint64_t left = size - sorted_.size();
  const auto rank = std::min(static_cast<uint64_t>(u * static_cast<double>(left)), left - 1);
  // The number of drawn items before the position looked for is the first i with sorted_[i] - i > rank.
  size_t low = 0, high = sorted_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (sorted_[middle] - middle > rank) high = middle;
    else low = middle + 1;
  }
  return sampler.dense_item(rank + low);
}

uint32_t DistinctDraws::next_in_order(bool oldest_first) {
  const Queue order = table_->record->order.get();
  const uint32_t first = oldest_first ? order.head : order.tail;
  // After the last drawn item that is still there.
  for (size_t i = drawn_.size(); i-- > 0;) {
    if (arena_.item(drawn_[i].item).seq.get() != drawn_[i].seq) continue;
    if (const uint32_t g = first_new(drawn_[i].item, oldest_first); g != kNone) return g;
    break;
  }
  return first_new(first, oldest_first);
}

// The first item that is not drawn, from item g on; kNone: there is none, or g is kNone.
uint32_t DistinctDraws::first_new(uint32_t g, bool oldest_first) {
  for (size_t n = 0; g != kNone && is_drawn(g); ++n) {
    if (n > drawn_.size()) corrupt("a table's order list does not end");
    const Link at = arena_.links(g).order.get();
    g = oldest_first ? at.next : at.prev;
  }
  return g;
}

// Below an item that is not drawn there is no better one. Below a drawn item, each of its children may be the best.
uint32_t DistinctDraws::best_of_heap(const Selector& sampler) {
  const uint64_t size = table_->record->size.get();
  uint64_t best = size;
  stack_.clear();
  if (size > 0) stack_.push_back(0);
  while (!stack_.empty()) {
    const uint64_t i = stack_.back();
    stack_.pop_back();
    if (best < size && !sampler.heap_before(i, best)) continue;
    if (!is_drawn(sampler.heap_item(i))) {
      best = i;
      continue;
    }
    if (stack_.size() + 4 > stack_.capacity()) corrupt("a heap has more drawn items than were drawn");
    for (uint64_t child = 4 * i + 1; child <= 4 * i + 4 && child < size; ++child) stack_.push_back(child);
  }
  return best < size ? sampler.heap_item(best) : kNone;
}

}  // namespace shmreplay
