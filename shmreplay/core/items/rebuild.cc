#include "items/rebuild.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arena/span.h"
#include "arena/upcalls.h"
#include "base/report_word.h"
#include "chunks/chunk_pool.h"
#include "items/item_table.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

// Sets a tree's words to 0, from `from_level` up, so that inserting builds the tree from nothing.
void clear_tree(Hold& hold, const TreeLayout& tree, uint32_t from_level) {
  uint64_t n = round_up(tree.num_leaves, 8);
  for (uint32_t k = 0; k < tree.num_levels; ++k, n = round_up(n / 8, 8)) {
    if (k < from_level) continue;
    for (uint64_t i = 0; i < n; ++i) hold.set(hold.arena().at<Word<double>>(tree.level[k])[i], 0.0);
  }
}

// Finds the record that counts an episode of one table. It is the record that the episode's items name, because their
// writer remembers that one too; another one only if that one is damaged.
class Episodes {
 public:
  explicit Episodes(const TableFacts& t) : base_(static_cast<uint32_t>(t.item_base)), taken_(t.capacity, false) {}

  // The episode's record, and whether this is the first item of that episode.
  std::pair<uint32_t, bool> record_of(uint64_t id, uint32_t named) {
    const auto [at, fresh] = records_.try_emplace(id, named);
    if (fresh) {
      if (named - base_ >= taken_.size() || has(named)) at->second = spare();
      taken_[at->second - base_] = true;
    }
    return {at->second, fresh};
  }

  bool has(uint32_t record) const { return taken_[record - base_]; }

 private:
  uint32_t spare() {
    while (taken_[next_]) ++next_;  // there are as many records as items
    return base_ + next_;
  }

  uint32_t base_, next_ = 0;
  std::vector<bool> taken_;
  std::unordered_map<uint64_t, uint32_t> records_;
};

class Rebuild {
 public:
  explicit Rebuild(Hold& hold) : hold_(hold), a_(hold.arena()) {}

  void run() {
    clear_patterns();
    reset_chunks();
    for (uint32_t i = 0; i < a_.num_tables(); ++i) rebuild_table(a_.table(i));
    count_windows();
    list_chunks();
    list_blocks();
    list_free_streams();
    count_sleepers();
    hold_.settle();
    hold_.set(a_.state().rebuilding, 0);
  }

 private:
  void clear_patterns() {
    for (uint32_t i = 0; i < a_.geometry().max_patterns; ++i) {
      hold_.set(a_.pattern(i).usage, {a_.pattern(i).usage.get().generation, 0});
    }
  }

  void reset_chunks() {
    for (uint32_t c = 0; c < a_.geometry().num_chunks; ++c) {
      hold_.set(a_.chunk(c).refs, {0, 0});
      hold_.set(a_.chunk(c).items, {kNone, 0});
    }
  }

  void clear_table(const TableFacts& t) {
    TableRecord& r = *t.record;
    hold_.set(r.order, {kNone, kNone});
    hold_.set(r.size, 0);
    hold_.set(r.num_episodes, 0);
    hold_.set(r.remaining_samples, 0);
    hold_.set(r.num_positive, 0);
    hold_.set(r.reweigh_left, 0);  // every leaf is made anew
    for (const RoleLayout& role : t.roles) {
      if (role.kind == kPrioritized) clear_tree(hold_, role.sum, 0);
    }
    if (t.prioritized()) {
      for (const TreeLayout& tree : t.extremes) clear_tree(hold_, tree, 1);
    }
  }

  std::vector<uint32_t> live_items(const TableFacts& t) {
    std::vector<uint32_t> live;
    for (uint32_t slot = 0; slot < t.capacity; ++slot) {
      const auto g = static_cast<uint32_t>(t.item_base + slot);
      if (a_.item(g).seq.get() != 0) live.push_back(g);
      else hold_.set(a_.priority(g), 0.0);
    }
    std::sort(live.begin(), live.end(),
              [&](uint32_t x, uint32_t y) { return a_.item(x).seq.get() < a_.item(y).seq.get(); });
    return live;
  }

  void rebuild_table(const TableFacts& t) {
    clear_table(t);
    Episodes episodes(t);
    for (const uint32_t g : live_items(t)) {
      add_item(t, g);
      Word<Tail>& tail = a_.links(g).tail;
      if (tail.get().episode_slot == kNone) {
        hold_.add(t.record->num_episodes, 1);
        continue;
      }
      const uint64_t id = a_.item(g).episode.get();
      const auto [slot, fresh] = episodes.record_of(id, tail.get().episode_slot);
      EpisodeRecord& e = a_.episode(slot);
      hold_.set(e.episode, id);
      hold_.set(e.use, {fresh ? 1 : e.use.get().items + 1, kNone});
      if (fresh) hold_.add(t.record->num_episodes, 1);
      hold_.set(tail, {tail.get().remover_pos, slot});
    }
    list_free(t, episodes);
    if (t.record->structure_hash.get() != 0) add_pattern_ref(hold_, t.record->structure_pattern.get());
    hold_.set(t.record->limiter.deletes, t.record->limiter.inserts.get() - t.record->size.get());
  }

  void add_item(const TableFacts& t, uint32_t g) {
    ItemRecord& item = a_.item(g);
    TableRecord& r = *t.record;
    const Queue order = r.order.get();
    hold_.set(a_.links(g).order, {order.tail, kNone});
    if (order.tail != kNone) hold_.set(a_.links(order.tail).order, {a_.links(order.tail).order.get().prev, g});
    hold_.set(r.order, {order.head == kNone ? g : order.head, g});
    each_run(a_, item.place.get(), item.extent.get().num_steps,
             [&](uint32_t chunk, uint32_t, uint32_t) { add_item_refs(hold_, chunk, 1, keeps_items(t)); });
    ChunkRecord& chunk = a_.chunk(item.place.get().chunk);
    const ChunkItems in = chunk.items.get();
    hold_.set(a_.links(g).chunk, {kNone, in.first});
    if (in.first != kNone) hold_.set(a_.links(in.first).chunk, {g, a_.links(in.first).chunk.get().next});
    hold_.set(chunk.items, {g, in.consuming});
    add_pattern_ref(hold_, item.extent.get().pattern);
    Selector(a_, t, kSampler).insert(hold_, g, a_.priority(g).get());
    Selector(a_, t, kRemover).insert(hold_, g, a_.priority(g).get());
    hold_.add(r.size, 1);
    if (t.consumes()) hold_.add(r.remaining_samples, t.max_times_sampled - item.counted.get().times_sampled);
  }

  void list_free(const TableFacts& t, const Episodes& in_use) {
    uint32_t items = kNone, episodes = kNone;
    for (uint32_t slot = t.capacity; slot-- > 0;) {
      const auto g = static_cast<uint32_t>(t.item_base + slot);
      if (a_.item(g).seq.get() == 0) {
        hold_.set(a_.links(g).order, {kNone, items});
        items = g;
      }
      if (!in_use.has(g)) {
        hold_.set(a_.episode(g).use, {0, episodes});
        episodes = g;
      }
    }
    hold_.set(t.record->free_item, items);
    hold_.set(t.record->free_episode, episodes);
  }

  void count_windows() {
    for (uint32_t i = 0; i < a_.geometry().max_streams; ++i) {
      StreamRecord& s = a_.stream(i);
      if (s.owner.get().session == kNone) continue;
      uint32_t c = s.window.get().first;
      for (uint32_t n = s.size.get().num_chunks; n > 0; --n, c = a_.chunk(c).stream.get().next) {
        const ChunkRefs refs = a_.chunk(c).refs.get();
        hold_.set(a_.chunk(c).refs, {refs.items, refs.windows + 1});
      }
    }
  }

  void list_chunks() {
    std::vector<uint32_t> by_state[3];
    for (uint32_t c = 0; c < a_.geometry().num_chunks; ++c) {
      ChunkRecord& r = a_.chunk(c);
      const ChunkLife life = r.life.get();
      const ChunkRefs refs = r.refs.get();
      const bool used = refs.items > 0 || refs.windows > 0;
      const uint32_t state = used ? kChunkUsed : life.state == kChunkFree ? kChunkFree : kChunkRetired;
      hold_.set(r.life, {state, life.repeats, life.rows, life.generation});
      if (!used) unlink_stream(c);
      by_state[state].push_back(c);
    }
    const auto older = [&](uint32_t x, uint32_t y) { return a_.chunk(x).stamp.get() < a_.chunk(y).stamp.get(); };
    std::sort(by_state[kChunkUsed].begin(), by_state[kChunkUsed].end(), older);
    std::sort(by_state[kChunkRetired].begin(), by_state[kChunkRetired].end(), older);
    for (uint32_t i = 0; i < a_.geometry().max_sessions; ++i) {
      hold_.set(a_.session(i).free_chunks, {kNone, 0});
      hold_.set(a_.session(i).chunk_owner, {kNone, kNone});
    }
    ArenaState& s = a_.state();
    hold_.set(s.chunk_owners, kNone);
    link(by_state[kChunkFree], false);
    link(by_state[kChunkUsed], true);
    link(by_state[kChunkRetired], false);
    const auto ends = [](const std::vector<uint32_t>& v) {
      return v.empty() ? Queue{kNone, kNone} : Queue{v.front(), v.back()};
    };
    hold_.set(s.free_chunks, {ends(by_state[kChunkFree]).head, static_cast<uint32_t>(by_state[kChunkFree].size())});
    hold_.set(s.used_chunks, ends(by_state[kChunkUsed]));
    hold_.set(s.retired_chunks, ends(by_state[kChunkRetired]));
    hold_.set(s.num_free, by_state[kChunkFree].size());
    hold_.set(s.num_used, by_state[kChunkUsed].size());
    hold_.set(s.num_retired, by_state[kChunkRetired].size());
  }

  // Neighbours forget a chunk that is not used: it will belong to another stream. They go first, so that a rebuild that
  // dies in between finds them again.
  void unlink_stream(uint32_t c) {
    const Link at = a_.chunk(c).stream.get();
    if (at.prev != kNone && a_.chunk(at.prev).stream.get().next == c) {
      hold_.set(a_.chunk(at.prev).stream, {a_.chunk(at.prev).stream.get().prev, kNone});
    }
    if (at.next != kNone && a_.chunk(at.next).stream.get().prev == c) {
      hold_.set(a_.chunk(at.next).stream, {kNone, a_.chunk(at.next).stream.get().next});
    }
    hold_.set(a_.chunk(c).stream, {kNone, kNone});
  }

  // A block is in use while its chunk is in use and has the generation that the block's owner word says.
  bool is_owned(uint32_t b) const {
    const BlockOwner owner = a_.block(b).owner.get();
    if (owner.chunk >= a_.geometry().num_chunks) return false;
    const ChunkLife life = a_.chunk(owner.chunk).life.get();
    return life.state != kChunkFree && life.generation == owner.generation;
  }

  void list_blocks() {
    uint32_t free = kNone;
    uint64_t num_free = 0;
    for (uint32_t b = a_.geometry().num_blocks; b-- > 0;) {
      if (is_owned(b)) continue;
      hold_.set(a_.block(b).owner, {kNone, 0});
      hold_.set(a_.block(b).link, {kNone, free});
      free = b;
      ++num_free;
    }
    hold_.set(a_.state().free_blocks, free);
    hold_.set(a_.state().num_free_blocks, num_free);
    chain_blocks();
    count_reservations();
  }

  // The number that an open stream has reserved is a fact, as long as there are that many free blocks.
  void count_reservations() {
    uint64_t all = 0;
    for (uint32_t i = 0; i < a_.geometry().max_streams; ++i) {
      StreamRecord& r = a_.stream(i);
      const uint64_t own = r.reserved_blocks.get();
      const bool stands = r.owner.get().session != kNone && own <= a_.state().num_free_blocks.get() - all;
      hold_.set(r.reserved_blocks, stands ? own : 0);
      all += r.reserved_blocks.get();
    }
    hold_.set(a_.state().num_reserved_blocks, all);
  }

  // All owned blocks of a chunk in one chain. Links between them are facts, because values lie along them. So a link is
  // kept if it leads to a block of the same chunk and no other link does. The pieces that are left are joined.
  void chain_blocks() {
    const uint32_t n = a_.geometry().num_blocks;
    std::vector<bool> is_led_to(n, false);
    std::vector<uint32_t> end(n);  // for the first block of a piece its last, and for the last its first
    for (uint32_t b = 0; b < n; ++b) end[b] = b;
    for (uint32_t b = 0; b < n; ++b) {
      const uint32_t next = a_.block(b).link.get().next_of_chunk;
      const bool keeps = is_owned(b) && next < n && !is_led_to[next] && end[next] != b && is_owned(next) &&
                         a_.block(next).owner.get().chunk == a_.block(b).owner.get().chunk;
      hold_.set(a_.block(b).link, {keeps ? next : kNone, a_.block(b).link.get().next_free});
      if (!keeps) continue;
      is_led_to[next] = true;
      const uint32_t first = end[b], last = end[next];
      end[first] = last;
      end[last] = first;
    }
    for (uint32_t c = 0; c < a_.geometry().num_chunks; ++c) {
      hold_.set(a_.chunk(c).writer, {a_.chunk(c).writer.get().session, kNone});
    }
    for (uint32_t b = 0; b < n; ++b) {
      if (!is_owned(b) || is_led_to[b]) continue;
      ChunkRecord& chunk = a_.chunk(a_.block(b).owner.get().chunk);
      hold_.set(a_.block(end[b]).link, {chunk.writer.get().first_block, kNone});
      hold_.set(chunk.writer, {chunk.writer.get().session, b});
    }
  }

  void list_free_streams() {
    uint32_t free = kNone;
    for (uint32_t i = a_.geometry().max_streams; i-- > 0;) {
      if (a_.stream(i).owner.get().session != kNone) continue;
      hold_.set(a_.stream(i).owner, {kNone, free});
      free = i;
    }
    hold_.set(a_.state().free_streams, free);
  }

  void count_sleepers() {
    for (uint32_t i = 0; i < a_.num_tables(); ++i) {
      for (WaitSide& side : a_.table(i).record->sides) hold_.set(side.sleepers, 0);
    }
    uint32_t free = kNone;
    for (uint32_t i = a_.geometry().num_sleep_slots; i-- > 0;) {
      const SleeperOwner owner = a_.sleeper(i).owner.get();
      if (owner.session != kNone) {
        hold_.add(a_.table(owner.where >> 1).record->sides[owner.where & 1].sleepers, 1);
      } else {
        hold_.set(a_.sleeper(i).next_free, free);
        free = i;
      }
    }
    hold_.set(a_.state().free_sleepers, free);
  }

  void link(const std::vector<uint32_t>& chunks, bool both_ways) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const uint32_t prev = both_ways && i > 0 ? chunks[i - 1] : kNone;
      hold_.set(a_.chunk(chunks[i]).age, {prev, i + 1 < chunks.size() ? chunks[i + 1] : kNone});
    }
  }

  Hold& hold_;
  Arena& a_;
};

}  // namespace

void rebuild_derived(Hold& hold) {
  Rebuild(hold).run();
  add_relaxed(hold.arena().state().num_rebuilds, 1);
}

Status rebuild(Arena& arena, const Wait& wait) {
  Hold hold(arena);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  hold.set(arena.state().rebuilding, 1);
  hold.stop_logging();
  rebuild_derived(hold);
  return Status::kOk;
}

}  // namespace shmreplay
