#include "items/check.h"

#include <cmath>
#include <cstring>
#include <set>
#include <unordered_map>

#include "arena/span.h"
#include "base/leaf_weights.h"
#include "chunks/block_heap.h"
#include "items/item_table.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

class Check {
 public:
  Check(const Hold& hold, std::vector<std::string>& faults) : a_(hold.arena()), faults_(faults) {}

  void run() {
    chunk_refs_.assign(a_.geometry().num_chunks, {0, 0});
    consuming_.assign(a_.geometry().num_chunks, 0);
    begin_here_.assign(a_.geometry().num_chunks, 0);
    pattern_refs_.assign(a_.geometry().max_patterns, 0);
    for (uint32_t i = 0; i < a_.num_tables(); ++i) check_table(a_.table(i));
    check_streams();
    check_chunks();
    check_blocks();
    check_patterns();
    check_sleepers();
  }

 private:
  void expect(bool ok, const std::string& what) {
    if (!ok && faults_.size() < 100) faults_.push_back(what);
  }
  template <class A, class B>
  void equal(const std::string& what, A have, B want) {
    const auto w = static_cast<A>(want);
    expect(have == w, what + " is " + std::to_string(have) + ", expected " + std::to_string(w));
  }

  void check_table(const TableFacts& t) {
    const TableRecord& r = *t.record;
    const std::string at = "table '" + t.name + "': ";
    equal(at + "I - D", r.limiter.inserts.get() - r.limiter.deletes.get(), r.size.get());
    expect(r.limiter.uncounted.get() <= r.limiter.inserts.get(), at + "more uncounted inserts than inserts");
    expect(r.size.get() <= t.max_size, at + "size " + std::to_string(r.size.get()) + " is over max_size");
    const std::vector<uint32_t> live = walk_order(t, at);
    equal(at + "items in the order list", live.size(), r.size.get());
    check_free(t, at, live.size());
    uint64_t remaining = 0;
    for (const uint32_t g : live) {
      count_item(t, g);
      if (t.consumes()) remaining += t.max_times_sampled - a_.item(g).counted.get().times_sampled;
    }
    equal(at + "remaining samples", r.remaining_samples.get(), remaining);
    check_episodes(t, at, live);
    check_role(t, at, kSampler, live);
    check_role(t, at, kRemover, live);
    if (t.prioritized()) check_extremes(t, at);
    if (r.structure_hash.get() != 0) ++pattern_refs_.at(r.structure_pattern.get());
  }

  std::vector<uint32_t> walk_order(const TableFacts& t, const std::string& at) {
    std::vector<uint32_t> live;
    uint32_t prev = kNone;
    uint64_t seq = 0;
    for (uint32_t g = t.record->order.get().head; g != kNone && live.size() <= t.capacity;
         g = a_.links(g).order.get().next) {
      expect(a_.links(g).order.get().prev == prev, at + "the order list's backward link of item " + std::to_string(g));
      expect(a_.item(g).seq.get() > seq, at + "items are not in order of their seq");
      expect(a_.table_of(g).index == t.index, at + "an item of another table");
      seq = a_.item(g).seq.get();
      live.push_back(g);
      prev = g;
    }
    expect(t.record->order.get().tail == prev, at + "the order list's tail");
    expect(seq < a_.state().next_seq.get(), at + "an item newer than next_seq");
    return live;
  }

  void check_free(const TableFacts& t, const std::string& at, size_t live) {
    size_t n = 0;
    for (uint32_t g = t.record->free_item.get(); g != kNone && n <= t.capacity; g = a_.links(g).order.get().next, ++n) {
      expect(a_.item(g).seq.get() == 0, at + "a free slot has a seq");
      expect(a_.priority(g).get() == 0, at + "a free slot has a priority");
    }
    equal(at + "free slots", n, t.capacity - live);
  }

  void count_item(const TableFacts& t, uint32_t g) {
    const ItemRecord& item = a_.item(g);
    each_run(a_, item.place.get(), item.extent.get().num_steps, [&](uint32_t chunk, uint32_t, uint32_t) {
      ++chunk_refs_[chunk].items;
      consuming_[chunk] += keeps_items(t) ? 1 : 0;
    });
    ++begin_here_.at(item.place.get().chunk);
    ++pattern_refs_.at(item.extent.get().pattern);
    if (a_.has_values()) check_values(g);
    const double p = a_.priority(g).get();
    expect(std::isfinite(p) && p >= 0, "item " + std::to_string(g) + " has priority " + std::to_string(p));
  }

  // The blocks of an item's values are those of the chunk that it begins in.
  void check_values(uint32_t g) {
    const BlockRef ref = a_.values(g).get();
    const uint32_t chunk = a_.item(g).place.get().chunk;
    uint32_t b = ref.first_block;
    for (uint32_t n = ref == kNoValue ? 0 : blocks_of(a_, ref.num_bytes); n > 0;
         --n, b = a_.block(b).link.get().next_of_chunk) {
      const BlockOwner owner = a_.block(b).owner.get();
      expect(owner.chunk == chunk && owner.generation == a_.chunk(chunk).life.get().generation,
             "the values of item " + std::to_string(g) + " lie in a block that its chunk does not own");
    }
  }

  void check_episodes(const TableFacts& t, const std::string& at, const std::vector<uint32_t>& live) {
    std::unordered_map<uint32_t, uint32_t> items;
    uint64_t own = 0;
    for (const uint32_t g : live) {
      const uint32_t slot = a_.links(g).tail.get().episode_slot;
      if (slot == kNone) {
        ++own;
        continue;
      }
      ++items[slot];
      equal(at + "episode of item " + std::to_string(g), a_.episode(slot).episode.get(), a_.item(g).episode.get());
    }
    for (const auto& [slot, n] : items) equal(at + "items of an episode", a_.episode(slot).use.get().items, n);
    equal(at + "num_episodes", t.record->num_episodes.get(), own + items.size());
    size_t free = 0;
    for (uint32_t g = t.record->free_episode.get(); g != kNone && free <= t.capacity;
         g = a_.episode(g).use.get().next_free)
      ++free;
    equal(at + "free episode records", free, t.capacity - items.size());
  }

  void check_role(const TableFacts& t, const std::string& at, Role role, const std::vector<uint32_t>& live) {
    const RoleLayout& layout = t.roles[role];
    const auto position = [&](uint32_t g) {
      return role == kSampler ? a_.item(g).counted.get().sampler_pos : a_.links(g).tail.get().remover_pos;
    };
    for (const uint32_t g : live) {
      if (layout.dense != 0) {
        const uint32_t i = position(g);
        expect(i < live.size() && a_.at<Word<uint32_t>>(layout.dense)[i].get() == g - t.item_base,
               at + "dense position of an item");
      }
      if (layout.heap != 0) {
        const uint32_t i = position(g);
        expect(i < live.size() && a_.at<HeapNode>(layout.heap)[i].item.get() == g &&
                   a_.at<HeapNode>(layout.heap)[i].priority.get() == a_.priority(g).get() &&
                   a_.at<HeapNode>(layout.heap)[i].touch.get() == a_.links(g).touch.get(),
               at + "heap position of an item");
      }
    }
    if (layout.heap != 0) check_heap(t, layout, at, live.size());
    if (layout.kind == kPrioritized) check_tree(t, role, at);
  }

  void check_heap(const TableFacts& t, const RoleLayout& layout, const std::string& at, size_t n) {
    const HeapNode* heap = a_.at<HeapNode>(layout.heap);
    for (size_t i = 1; i < std::min<size_t>(n, t.capacity); ++i) {
      const HeapNode &child = heap[i], &parent = heap[(i - 1) / 4];
      const double c = child.priority.get(), p = parent.priority.get();
      const bool ordered = c == p ? parent.touch.get() < child.touch.get() : (p < c) == (layout.kind == kMinHeap);
      expect(ordered, at + "heap order at node " + std::to_string(i));
    }
  }

  void check_tree(const TableFacts& t, Role role, const std::string& at) {
    const SumTree tree(a_, t.roles[role].sum);
    const double exponent = t.record->exponents[role].get();
    uint64_t positive = 0;
    for (uint32_t slot = 0; slot < t.capacity; ++slot) {
      const auto g = static_cast<uint32_t>(t.item_base + slot);
      const double want = a_.item(g).seq.get() == 0 ? 0 : leaf_weight(a_.priority(g).get(), exponent);
      const bool follows = role == kRemover || slot >= t.record->reweigh_left.get();
      const double leaf = tree.leaf(slot);
      expect(follows ? leaf == want : (leaf > 0) == (want > 0), at + "sum tree leaf " + std::to_string(slot));
      positive += leaf > 0 ? 1 : 0;
    }
    if (role == kSampler) equal(at + "items of positive priority", t.record->num_positive.get(), positive);
    tree.recompute(
        [&](const Word<double>& node, double want) { expect(node.get() == want, at + "a node of the sum tree"); });
  }

  void check_extremes(const TableFacts& t, const std::string& at) {
    Extremes(a_, t.extremes).recompute([&](const Word<double>& node, double want) {
      expect(node.get() == want, at + "a node of the trees of extremes");
    });
  }

  void check_streams() {
    uint32_t open = 0, free = 0;
    uint64_t reserved = 0;
    for (uint32_t i = 0; i < a_.geometry().max_streams; ++i) {
      const StreamRecord& s = a_.stream(i);
      const StreamOwner owner = s.owner.get();
      reserved += s.reserved_blocks.get();
      expect(owner.session != kNone || s.reserved_blocks.get() == 0,
             "stream " + std::to_string(i) + " is closed and has reserved blocks");
      if (owner.session == kNone) continue;
      ++open;
      const StateGeneration session = a_.session(owner.session).state.get();
      expect(session.generation == owner.generation && session.state != kSessionFree,
             "stream " + std::to_string(i) + " has no session");
      uint32_t c = s.window.get().first;
      for (uint32_t n = s.size.get().num_chunks; n > 0; --n, c = a_.chunk(c).stream.get().next)
        ++chunk_refs_.at(c).windows;
    }
    for (uint32_t i = a_.state().free_streams.get(); i != kNone && free <= a_.geometry().max_streams;
         i = a_.stream(i).owner.get().generation)
      ++free;
    equal("free streams", free, a_.geometry().max_streams - open);
    equal("num_reserved_blocks", a_.state().num_reserved_blocks.get(), reserved);
    expect(reserved <= a_.state().num_free_blocks.get(), "more blocks are reserved than are free");
  }

  void check_chunks() {
    for (uint32_t c = 0; c < a_.geometry().num_chunks; ++c) {
      const ChunkRecord& r = a_.chunk(c);
      const std::string at = "chunk " + std::to_string(c) + ": ";
      equal(at + "item references", r.refs.get().items, chunk_refs_[c].items);
      equal(at + "window references", r.refs.get().windows, chunk_refs_[c].windows);
      const bool used = r.refs.get().items > 0 || r.refs.get().windows > 0;
      expect(used == (r.life.get().state == kChunkUsed), at + "is used without references, or the other way round");
      expect(!r.life.get().repeats || r.life.get().rows == a_.geometry().chunk_steps,
             at + "repeats a row that it does not have");
      if (!used) continue;
      equal(at + "references of tables that keep items", r.items.get().consuming, consuming_[c]);
      const Link stream = r.stream.get();
      expect(stream.next == kNone || a_.chunk(stream.next).stream.get().prev == c,
             at + "its neighbour in the stream does not name it");
      expect(stream.prev == kNone || a_.chunk(stream.prev).stream.get().next == c,
             at + "its neighbour in the stream does not name it");
      uint32_t n = 0, prev = kNone;
      for (uint32_t g = r.items.get().first; g != kNone && n <= begin_here_[c]; g = a_.links(g).chunk.get().next, ++n) {
        expect(a_.item(g).place.get().chunk == c && a_.links(g).chunk.get().prev == prev, at + "its list of items");
        prev = g;
      }
      equal(at + "items that begin in it", n, begin_here_[c]);
    }
    check_chunk_lists();
  }

  uint64_t walk(uint32_t head, uint32_t state, const char* which) {
    uint64_t n = 0;
    for (uint32_t c = head; c != kNone && n <= a_.geometry().num_chunks; c = a_.chunk(c).age.get().next, ++n) {
      expect(a_.chunk(c).life.get().state == state, std::string("a chunk in the ") + which + " list is not " + which);
    }
    return n;
  }

  void check_used_order() {
    const Queue used = a_.state().used_chunks.get();
    uint32_t prev = kNone, n = 0;
    for (uint32_t c = used.head; c != kNone && n <= a_.geometry().num_chunks;
         prev = c, c = a_.chunk(c).age.get().next, ++n) {
      expect(a_.chunk(c).age.get().prev == prev, "the used list's backward link of chunk " + std::to_string(c));
      expect(prev == kNone || a_.chunk(prev).stamp.get() < a_.chunk(c).stamp.get(),
             "used chunks are not in the order taken");
    }
    expect(used.tail == prev, "the used list's tail");
  }

  void check_chunk_lists() {
    check_used_order();
    const ArenaState& s = a_.state();
    uint64_t free = walk(s.free_chunks.get().head, kChunkFree, "free");
    equal("free chunks of no session", free, s.free_chunks.get().count);
    std::set<uint32_t> owners;
    for (uint32_t i = s.chunk_owners.get(); i != kNone && owners.insert(i).second;)
      i = a_.session(i).chunk_owner.get().next;
    for (uint32_t i = 0; i < a_.geometry().max_sessions; ++i) {
      const Stack mine = a_.session(i).free_chunks.get();
      const uint64_t n = walk(mine.head, kChunkFree, "free");
      equal("free chunks of session " + std::to_string(i), n, mine.count);
      expect((n > 0) == (owners.count(i) > 0),
             "session " + std::to_string(i) + " in the list of those with free chunks");
      free += n;
    }
    equal("num_free", s.num_free.get(), free);
    equal("num_used", s.num_used.get(), walk(s.used_chunks.get().head, kChunkUsed, "used"));
    equal("num_retired", s.num_retired.get(), walk(s.retired_chunks.get().head, kChunkRetired, "retired"));
    equal("free + used + retired", s.num_free.get() + s.num_used.get() + s.num_retired.get(), a_.geometry().num_chunks);
  }

  void check_blocks() {
    uint32_t owned = 0, free = 0;
    for (uint32_t c = 0; c < a_.geometry().num_chunks; ++c) {
      const ChunkRecord& r = a_.chunk(c);
      const bool may_have = r.life.get().state != kChunkFree;
      expect(may_have || r.writer.get().first_block == kNone, "chunk " + std::to_string(c) + " is free and has blocks");
      for (uint32_t b = r.writer.get().first_block; b != kNone && owned <= a_.geometry().num_blocks;
           b = a_.block(b).link.get().next_of_chunk) {
        const BlockOwner owner = a_.block(b).owner.get();
        expect(owner.chunk == c && owner.generation == r.life.get().generation,
               "a block in the chain of chunk " + std::to_string(c) + " belongs to another chunk");
        ++owned;
      }
    }
    for (uint32_t b = a_.state().free_blocks.get(); b != kNone && free <= a_.geometry().num_blocks;
         b = a_.block(b).link.get().next_free) {
      expect(a_.block(b).owner.get().chunk == kNone, "a free block has an owner");
      ++free;
    }
    equal("owned and free blocks", owned + free, a_.geometry().num_blocks);
    equal("num_free_blocks", a_.state().num_free_blocks.get(), free);
  }

  void check_patterns() {
    for (uint32_t i = 0; i < a_.geometry().max_patterns; ++i) {
      equal("references to pattern " + std::to_string(i), a_.pattern(i).usage.get().refs, pattern_refs_[i]);
    }
  }

  void check_sleepers() {
    std::unordered_map<uint32_t, uint32_t> sleepers;
    const uint32_t num_slots = a_.geometry().num_sleep_slots;
    uint32_t taken = 0, free = 0;
    for (uint32_t i = 0; i < num_slots; ++i) {
      const SleeperOwner owner = a_.sleeper(i).owner.get();
      if (owner.session == kNone) continue;
      ++sleepers[owner.where];
      ++taken;
    }
    for (uint32_t i = a_.state().free_sleepers.get(); i != kNone && free <= num_slots;
         i = a_.sleeper(i).next_free.get())
      ++free;
    equal("free sleep slots", free, num_slots - taken);
    for (uint32_t i = 0; i < a_.num_tables(); ++i) {
      for (uint32_t side = 0; side < 2; ++side) {
        equal("sleepers of table '" + a_.table(i).name + "'", a_.table(i).record->sides[side].sleepers.get(),
              sleepers[i << 1 | side]);
      }
    }
  }

  Arena& a_;
  std::vector<std::string>& faults_;
  std::vector<ChunkRefs> chunk_refs_;
  std::vector<uint32_t> consuming_, begin_here_, pattern_refs_;
};

}  // namespace

Status check_invariants(Arena& arena, const Wait& wait, std::vector<std::string>& faults) {
  Hold hold(arena);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  try {
    Check(hold, faults).run();
  } catch (const CorruptIndex& e) {
    faults.push_back(std::string("the walk left the index: ") + e.what());
  } catch (const std::out_of_range&) {
    faults.push_back("an item or stream names a chunk or pattern that does not exist");
  }
  return Status::kOk;
}

}  // namespace shmreplay
