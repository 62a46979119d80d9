#include "arena/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

#include "base/host_identity.h"
#include "items/check.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 10, kPrioritized, kMinHeap), queue_table("b", 5)}); }

using Kind = AttachError::Kind;

// Damages the header and expects that the next attach is refused for that reason.
template <class Damage>
void expect_refused(Damage damage, const std::string& text) {
  Segments segments(small());
  damage(segments.attach()->header());
  CHECK_THROWS(AttachError, text, segments.attach());
}

bool attaches(const Segments& segments) {
  try {
    segments.attach();
    return true;
  } catch (const AttachError&) {
    return false;
  }
}

}  // namespace

// A heap of 16 MiB could hold every size that the word can name.
TEST(a_packed_row_for_which_there_is_no_memory_is_refused_at_attach) {
  if (kSanitized) return;  // a sanitizer takes terabytes of address space
  ArenaSpec spec = small();
  spec.columns.push_back({0, kHeapColumn, 100});
  spec.num_blocks = 4096;
  spec.block_bytes = 4096;
  for (const uint32_t bytes : {0x7fff'ffffu, 1u << 30, 1u << 28}) {
    Segments segments(spec);
    const auto before = segments.attach();
    ColumnRecord* columns = before->at<ColumnRecord>(before->offsets().columns);
    columns[before->geometry().num_columns - 1].packed_bytes = bytes;
    Child limited([&] {
      const rlimit limit{1u << 29, 1u << 29};
      CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
      CHECK_THROWS(std::system_error, "bytes of memory (the address space of process ", segments.attach());
    });
    limited.join();
  }
}

TEST(an_attached_arena_knows_its_names_specs_and_tables) {
  World w(small());
  CHECK_EQ(w.arena.instance(), "native");
  CHECK_EQ(w.arena.name(), "tests");
  CHECK_EQ(w.arena.specs(), "opaque");
  CHECK_EQ(w.arena.num_tables(), 2u);
  CHECK_EQ(w.table(1).name, "b");
  CHECK_EQ(w.table(0).capacity, 11u);
  CHECK_EQ(w.table(1).item_base, 16u);
  CHECK(w.table(1).consumes() && !w.table(0).consumes());
  CHECK(w.table(0).prioritized() && !w.table(1).prioritized());
}

TEST(a_segment_that_is_not_ours_or_not_ready_is_refused) {
  expect_refused([](Header& h) { h.magic ^= 1; }, "not a shmreplay segment");
  expect_refused([](Header& h) { h.ready.store(0); }, "died before it was ready");
  expect_refused([](Header& h) { h.boot_id[0] ^= 1; }, "made before the last boot");
  expect_refused([](Header& h) { h.failed.store(1); }, "marked failed");
}

// Clients and daemons go by the class of the error: a foreign arena is set aside, one that cannot be looked at is not.
TEST(a_lack_of_descriptors_or_of_address_space_says_nothing_of_an_arena) {
  if (kSanitized) return;  // a sanitizer takes terabytes of address space, and looks at memory by a pipe
  Segments segments(small());
  Child without_descriptors([&] {
    const rlimit none{0, 0};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_THROWS(std::system_error, "boot_id cannot be read (process ", segments.attach());
    CHECK_THROWS(std::system_error, "may have 0 files open: raise ulimit -n", segments.attach());
  });
  without_descriptors.join();
  CHECK(attaches(segments));
  Child without_room([&] {
    const rlimit none{1, 1};
    CHECK_EQ(setrlimit(RLIMIT_AS, &none), 0);
    CHECK_THROWS(std::system_error, "may have 1 bytes: raise ulimit -v", segments.attach());
  });
  without_room.join();
}

TEST(a_foreign_layout_is_refused_with_both_layouts_in_the_text) {
  expect_refused([](Header& h) { h.layout_version = 2; }, "layout 2/");
  expect_refused([](Header& h) { h.layout_hash ^= 1; }, "this build has " + std::to_string(kLayoutVersion) + "/");
}

TEST(another_pid_namespace_is_refused_with_what_to_do) {
  expect_refused([](Header& h) { h.pid_namespace ^= 1; }, "docker run --pid=host");
}

TEST(another_time_namespace_is_refused) {
  expect_refused([](Header& h) { h.time_namespace ^= 1; }, "time namespace");
}

TEST(truncated_segments_are_refused) {
  Segments segments(small());
  const off_t whole = lseek(segments.data_fd, 0, SEEK_END);
  CHECK_EQ(ftruncate(segments.data_fd, whole - 4096), 0);
  CHECK_THROWS(AttachError, "were they truncated?", segments.attach());
  CHECK_EQ(ftruncate(segments.index_fd, 100), 0);
  CHECK_THROWS(AttachError, "too small to be one of ours (100 bytes)", segments.attach());
}

TEST(a_region_outside_the_segment_is_refused) {
  const char* text = "its header is damaged";
  expect_refused([](Header& h) { h.offsets.items = h.index_bytes; }, text);
  expect_refused([](Header& h) { h.offsets.items += 8; }, text);
  expect_refused([](Header& h) { h.geometry.total_items = uint64_t{1} << 60; }, text);
  expect_refused([](Header& h) { h.geometry.num_chunks = 1u << 30; }, text);
  expect_refused([](Header& h) { h.geometry.chunk_steps = 0; }, text);
  expect_refused([](Header& h) { h.geometry.num_call_slots = 0; }, text);
  expect_refused([](Header& h) { h.geometry.presence_offset = h.geometry.chunk_bytes; }, text);
  expect_refused([](Header& h) { h.geometry.presence_words = 77; }, text);
  expect_refused([](Header& h) { h.geometry.chunk_bytes -= 8; }, text);
  expect_refused([](Header& h) { h.offsets.specs_bytes = ~uint64_t{0}; }, text);
}

TEST(a_damaged_table_record_is_refused) {
  const auto damage = [](auto change) {
    Segments segments(small());
    change(*segments.attach()->table(0).record);
    CHECK_THROWS(AttachError, "is damaged", segments.attach());
  };
  damage([](TableRecord& t) { t.capacity = 12; });
  damage([](TableRecord& t) { t.item_base = 8; });
  damage([](TableRecord& t) { t.slot_bits = 77; });
  damage([](TableRecord& t) { t.roles[kSampler].kind = 77; });
  damage([](TableRecord& t) { t.roles[kSampler].sum.level[0] += 8; });
  damage([](TableRecord& t) { t.extremes[0].num_levels = 9; });
}

// Whatever the constants say, attaching must answer: it refuses, or its boundaries hold.
TEST(random_damage_to_the_constants_never_moves_a_boundary) {
  Random random(seed());
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    Segments segments(small());
    {
      const auto arena = segments.attach();
      char* header = arena->index();
      char* table = reinterpret_cast<char*>(arena->table(0).record);
      const bool in_header = random.chance(0.7);
      char* at = in_header ? header + offsetof(Header, geometry) + random.below(sizeof(Geometry) + sizeof(Offsets))
                           : table + random.below(offsetof(TableRecord, exponents));
      *at = static_cast<char>(random.word());
    }
    if (!attaches(segments)) {
      ++refused;
      continue;
    }
    const auto arena = segments.attach();
    std::vector<std::string> faults;
    check_invariants(*arena, kNow, faults);
  }
  CHECK(refused > 100);
}

TEST(an_index_out_of_range_is_an_exception_and_not_a_wild_pointer) {
  World w(small());
  const Geometry& g = w.arena.geometry();
  CHECK_THROWS(CorruptIndex, "index out of range", w.arena.session(g.max_sessions));
  CHECK_THROWS(CorruptIndex, "index out of range", w.arena.stream(kNone));
  CHECK_THROWS(CorruptIndex, "index out of range", w.arena.item(static_cast<uint32_t>(g.total_items)));
  CHECK_THROWS(CorruptIndex, "chunk index", w.arena.chunk_data(g.num_chunks));
  CHECK_THROWS(CorruptIndex, "block index", w.arena.block_data(0));
  CHECK_THROWS(CorruptIndex, "table index", w.arena.table(2));
  CHECK_THROWS(CorruptIndex, "belongs to no table", w.arena.table_of(11));  // padding between the tables
  CHECK_EQ(w.arena.table_of(10).name, "a");
  CHECK_EQ(w.arena.table_of(16).name, "b");
}

TEST(inspecting_a_header_tells_what_it_says_and_throws_for_no_damage) {
  Segments segments(small());
  const HeaderReport good = inspect_header(segments.index_fd);
  CHECK(good.magic_ok && good.ready && !good.failed);
  CHECK_EQ(good.instance, "native");
  CHECK_EQ(good.specs, "opaque");
  CHECK_EQ(good.layout_hash, layout_hash());
  CHECK_EQ(good.boot_id, boot_id());
  segments.attach()->header().ready.store(0);
  CHECK(!inspect_header(segments.index_fd).ready);
  CHECK_EQ(ftruncate(segments.index_fd, 10), 0);
  CHECK(!inspect_header(segments.index_fd).magic_ok);
  CHECK_THROWS(std::system_error, "its header cannot be read", inspect_header(-1));  // which is no damage
}

TEST(a_mapping_knows_that_it_was_made_by_the_parent) {
  World w(small());
  CHECK(!w.arena.forked());
  Child child([&] {
    CHECK(w.arena.forked());
    CHECK(!w.segments.attach()->forked());
  });
  child.join();
  CHECK(!w.arena.forked());
}

TEST(two_mappings_of_one_arena_see_each_others_words) {
  World w(small());
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.set(w.arena.state().next_take, 42);
  }
  CHECK_EQ(w.daemon->state().next_take.get(), 42u);
}

}  // namespace shmreplay::test
