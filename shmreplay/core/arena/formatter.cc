#include "arena/formatter.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>

#include "arena/arena.h"
#include "arena/huge_pages.h"
#include "arena/robust_lock.h"
#include "base/host_identity.h"
#include "base/limits.h"

namespace shmreplay {
namespace {

uint64_t random_word() {
  uint64_t word;
  if (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  return word;
}

void check_size(int fd, uint64_t bytes, const char* which) {
  struct stat st;
  if (fstat(fd, &st) != 0) throw std::system_error(errno, std::generic_category(), which);
  if (static_cast<uint64_t>(st.st_size) != bytes) {
    throw std::invalid_argument(std::string(which) + " segment has " + std::to_string(st.st_size) +
                                " bytes, the plan says " + std::to_string(bytes));
  }
}

void copy_name(char* to, size_t room, const std::string& name, const char* what) {
  if (name.empty() || name.size() >= room) {
    throw std::invalid_argument(std::string(what) + " name '" + name + "' must have 1 to " + std::to_string(room - 1) +
                                " bytes");
  }
  memcpy(to, name.c_str(), name.size() + 1);
}

}  // namespace

void Formatter::run(const std::string& instance, const std::string& name, bool published) {
  plan_ = plan_arena(spec_);
  check_size(index_fd_, plan_.index_bytes, "index");
  check_size(data_fd_, plan_.data_bytes, "data");
  void* p = map_aligned(index_fd_, 0, plan_.index_bytes);
  if (p == MAP_FAILED) {
    throw refused(errno, "index segment: its " + std::to_string(plan_.index_bytes) + " bytes cannot be mapped");
  }
  index_ = static_cast<char*>(p);
  try {
    write_header(instance, name);
    write_state();
    write_lists();
    write_tables();
    // SYNC POINT with Arena::check_header.
    if (published) at<Header>(0)->ready.store(1, std::memory_order_release);
  } catch (...) {
    munmap(index_, plan_.index_bytes);
    throw;
  }
  munmap(index_, plan_.index_bytes);
}

void Formatter::write_header(const std::string& instance, const std::string& name) {
  auto* h = new (index_) Header{};
  h->magic = kMagic;
  h->layout_version = kLayoutVersion;
  h->header_bytes = sizeof(Header);
  h->layout_hash = layout_hash();
  h->index_bytes = plan_.index_bytes;
  h->data_bytes = plan_.data_bytes;
  h->pid_namespace = namespace_inode("pid");
  h->time_namespace = namespace_inode("time");
  copy_name(h->boot_id, sizeof h->boot_id, boot_id(), "boot");
  copy_name(h->instance, sizeof h->instance, instance, "instance");
  copy_name(h->name, sizeof h->name, name, "arena");
  h->geometry = plan_.geometry;
  h->offsets = plan_.offsets;
  memcpy(index_ + plan_.offsets.specs, spec_.specs.data(), spec_.specs.size());
}

void Formatter::write_state() {
  const Geometry& g = plan_.geometry;
  RobustLock::init(*at<LockBlock>(plan_.offsets.lock));
  auto& s = *at<ArenaState>(plan_.offsets.state);
  // A key holds the low bits of seq. A random start makes the keys of two arenas differ, even if one follows the other
  // under the same name. A start in the lowest sixteenth keeps sorted keys in insertion order until those bits wrap.
  uint32_t slot_bits = 1;
  for (const TableSpec& t : spec_.tables)
    slot_bits = std::max(slot_bits, static_cast<uint32_t>(std::bit_width(t.max_size)));
  s.next_seq.put(1 + random_word() % (uint64_t{1} << (63 - kShardBits - slot_bits - 4)));
  s.next_stream_serial.put(1);
  s.next_take.put(1);
  s.next_retire.put(1);
  s.free_chunks.put({0, g.num_chunks});
  s.used_chunks.put({kNone, kNone});
  s.retired_chunks.put({kNone, kNone});
  s.num_free.put(g.num_chunks);
  s.chunk_owners.put(kNone);
  s.free_streams.put(0);
  s.free_sleepers.put(0);
  s.free_blocks.put(g.num_blocks > 0 ? 0 : kNone);
  s.num_free_blocks.put(g.num_blocks);
}

void Formatter::write_lists() {
  const Geometry& g = plan_.geometry;
  const Offsets& o = plan_.offsets;
  const auto next = [](uint32_t i, uint32_t n) { return i + 1 < n ? i + 1 : kNone; };
  for (uint32_t i = 0; i < g.max_sessions; ++i) {
    SessionRecord& r = at<SessionRecord>(o.sessions)[i];
    r.free_chunks.put({kNone, 0});
    r.chunk_owner.put({kNone, kNone});
  }
  for (uint32_t i = 0; i < g.max_streams; ++i) {
    StreamRecord& r = at<StreamRecord>(o.streams)[i];
    r.owner.put({kNone, next(i, g.max_streams)});
    r.window.put({kNone, kNone});
  }
  for (uint32_t i = 0; i < g.num_sleep_slots; ++i) {
    SleepSlot& r = at<SleepSlot>(o.sleepers)[i];
    r.owner.put({kNone, 0});
    r.next_free.put(next(i, g.num_sleep_slots));
  }
  for (uint32_t i = 0; i < g.num_chunks; ++i) {
    ChunkRecord& r = at<ChunkRecord>(o.chunks)[i];
    r.items.put({kNone, 0});
    r.stream.put({kNone, kNone});
    r.age.put({kNone, next(i, g.num_chunks)});
    r.writer.put({kNone, kNone});
  }
  for (uint32_t i = 0; i < g.num_blocks; ++i) {
    BlockRecord& r = at<BlockRecord>(o.blocks)[i];
    r.owner.put({kNone, 0});
    r.link.put({kNone, next(i, g.num_blocks)});
  }
  for (uint32_t i = 0; i < g.num_columns; ++i) at<ColumnRecord>(o.columns)[i] = plan_.columns[i];
}

void Formatter::write_tables() {
  uint64_t base = 0, selectors = plan_.offsets.selectors;
  for (uint32_t i = 0; i < plan_.geometry.num_tables; ++i) {
    write_table(i, base, selectors);
    base += round_up(uint64_t{spec_.tables[i].max_size} + 1, 8);
  }
}

void Formatter::write_table(uint32_t index, uint64_t item_base, uint64_t& selectors) {
  const Offsets& o = plan_.offsets;
  const TableSpec& spec = spec_.tables[index];
  TableRecord& t = at<TableRecord>(o.tables)[index];
  copy_name(t.name, sizeof t.name, spec.name, "table");
  t.max_size = spec.max_size;
  t.capacity = spec.max_size + 1;
  t.max_times_sampled = spec.max_times_sampled;
  t.slot_bits = static_cast<uint32_t>(std::bit_width(t.capacity - 1));
  t.on_full = spec.on_full;
  t.item_steps = spec.item_steps;
  t.item_base = item_base;
  const SelectorPlacement p =
      place_selectors(spec.max_size, spec.sampler, spec.remover, o.priorities + item_base * 8, selectors);
  selectors = p.end;
  for (int role = 0; role < 2; ++role) {
    t.roles[role] = p.roles[role];
    t.extremes[role] = p.extremes[role];
  }
  t.shard = spec.shard;
  t.exponents[kSampler].put(spec.sampler_exponent);
  t.exponents[kRemover].put(spec.remover_exponent);
  t.order.put({kNone, kNone});
  t.free_item.put(static_cast<uint32_t>(item_base));
  t.free_episode.put(static_cast<uint32_t>(item_base));
  t.next_insert_no.put(1);
  t.next_touch.put(1);
  t.remover_rng.put(random_word());
  t.structure_pattern.put(kNone);
  Limiter& l = t.limiter;
  l.samples_per_insert.put(spec.samples_per_insert);
  l.min_diff.put(spec.min_diff);
  l.max_diff.put(spec.max_diff);
  l.min_size_to_sample.put(spec.min_size_to_sample);
  l.count_deletes.put(spec.count_deletes ? 1 : 0);
  for (uint32_t slot = 0; slot < t.capacity; ++slot) {
    const auto g = static_cast<uint32_t>(item_base + slot);
    const uint32_t next = slot + 1 < t.capacity ? g + 1 : kNone;
    at<ItemLinks>(o.links)[g].order.put({kNone, next});
    at<EpisodeRecord>(o.episodes)[g].use.put({0, next});
  }
}

}  // namespace shmreplay
