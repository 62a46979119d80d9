// Packed columns: a stream compresses rows, mostly to what differs from the row before, and readers decode them.
#include <algorithm>
#include <cstring>

#include "chunks/block_heap.h"
#include "chunks/packed_reader.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kRowBytes = 600, kColumn = 3;

ArenaSpec packed_arena(uint32_t chunk_steps = 32, uint32_t num_blocks = 4000) {
  ArenaSpec s = arena_of({open_table("a", 1000)}, chunk_steps);
  s.columns.push_back({0, kHeapColumn, kRowBytes});
  s.num_blocks = num_blocks;
  s.block_bytes = 64;
  return s;
}

// Noise that stays the same; a few of its bytes are the serial's own.
std::string row_of(uint64_t serial) {
  std::string row(kRowBytes, 0);
  Random random(7);
  for (char& c : row) c = static_cast<char>(random.word());
  for (size_t i = 0; i < 20; ++i) row[(serial * 13 + i) % kRowBytes] = static_cast<char>(serial + i);
  return row;
}

struct Scene {
  explicit Scene(uint32_t chunk_steps = 32, uint32_t num_blocks = 4000)
      : world(packed_arena(chunk_steps, num_blocks)), writer(world.arena, world.table(), 40) {
    CHECK_EQ(writer.open(kWhatever), Status::kOk);
  }

  void write_plain(uint64_t serial) {
    for (uint32_t c = 0; c < kColumn; ++c) fill_cell(writer.row().cell(c), world.arena.columns()[c].row_bytes, serial);
  }
  void write(uint64_t serial) {
    CHECK_EQ(writer.ensure_row(kWhatever), Status::kOk);
    write_plain(serial);
    writer.row().begin_packing();
    writer.row().pack(kColumn, row_of(serial).data(), 0);
    CHECK_EQ(writer.secure_blocks(writer.row().packed_blocks(), kWhatever), Status::kOk);
    writer.row().write_packed();
    writer.row().mark_all();
  }
  void append(uint64_t serial) {
    write(serial);
    writer.finish_row();
  }
  int64_t create(uint32_t length) {
    PreparedPattern span(whole_pattern(world.arena));
    int64_t key = 0;
    CHECK_EQ(create_item(writer, world.table(), span, length, 1.0, kNow, key, kNoValue), Status::kOk);
    return key;
  }
  BlockRef ref(uint64_t step) { return writer.history().value(step, kColumn); }

  World world;
  StreamWriter writer;
};

bool leans_at(Scene& s, uint64_t step) {
  const BlockRef ref = s.ref(step);
  return leans(s.world.arena.block_data(ref.first_block), ref.num_bytes, kRowBytes);
}

void check_step(Scene& s, uint64_t step, uint64_t serial) {
  std::string row(kRowBytes, 0);
  CHECK(s.writer.history().read_packed(step, kColumn, row.data()));
  CHECK(row == row_of(serial));
}

}  // namespace

TEST(rows_come_back_in_any_order) {
  Scene s;
  for (uint64_t i = 0; i < 40; ++i) s.append(i);
  for (uint64_t i = 40; i-- > 0;) check_step(s, i, i);
  PackedReader reader(kRowBytes);
  std::string row(kRowBytes, 0);
  Random random(seed());
  for (int round = 0; round < 300; ++round) {
    const auto at = static_cast<uint32_t>(random.below(32));
    reader.read(s.world.arena, 0, kColumn, at, row.data());
    CHECK(row == row_of(at));
    if (random.chance(0.1)) reader.forget();
  }
  CHECK(!reader.damage().is_there);
}

TEST(a_row_leans_on_none_at_a_chunk_s_start_and_every_so_often) {
  Scene s(12);
  for (uint64_t i = 0; i < 36; ++i) s.append(i);
  for (uint64_t i = 0; i < 36; ++i) CHECK_EQ(leans_at(s, i), i % 12 % kKeyEvery != 0);
}

TEST(a_row_that_is_written_again_leans_on_the_one_that_is_there) {
  Scene s;
  for (uint64_t i = 0; i < 3; ++i) s.append(i);
  for (uint64_t wrong = 50; wrong < 53; ++wrong) {
    s.write(wrong);
    s.writer.row().restore(std::vector<uint64_t>(s.writer.row().present().size(), 0));
  }
  s.append(3);
  s.append(4);
  for (uint64_t i = 0; i < 5; ++i) check_step(s, i, i);
  CHECK(!leans_at(s, 3));  // the row packed before it was taken back
  CHECK(leans_at(s, 4));
}

TEST(rows_that_did_not_become_items_are_leant_on_by_none) {
  Scene s;
  s.append(0);
  s.append(1);
  CHECK_EQ(s.writer.ensure_row(kNow), Status::kOk);
  s.writer.row().begin_packing();
  for (uint32_t i = 0; i < 5; ++i) s.writer.row().pack(kColumn, row_of(70 + i).data(), i);
  CHECK_EQ(s.writer.secure_blocks(s.writer.row().packed_blocks(), kNow), Status::kOk);
  s.writer.row().write_packed();
  s.writer.row().give_up_values();
  s.append(2);
  s.append(3);
  for (uint64_t i = 0; i < 4; ++i) check_step(s, i, i);
}

TEST(what_was_packed_and_not_written_is_leant_on_by_none) {
  Scene s;
  s.append(0);
  CHECK_EQ(s.writer.ensure_row(kNow), Status::kOk);
  s.writer.row().begin_packing();
  for (uint32_t i = 0; i < 4; ++i) s.writer.row().pack(kColumn, row_of(90 + i).data(), i);
  s.writer.row().keep_packed(2);
  CHECK_EQ(s.writer.row().packed_blocks(), 2 * blocks_of(s.world.arena, 60));
  s.append(1);
  s.append(2);
  for (uint64_t i = 0; i < 3; ++i) check_step(s, i, i);
}

TEST(a_step_without_the_column_is_leant_on_by_none) {
  Scene s;
  s.append(0);
  CHECK_EQ(s.writer.ensure_row(kNow), Status::kOk);
  s.write_plain(1);
  for (uint32_t c = 0; c < kColumn; ++c) s.writer.row().mark(c);
  s.writer.finish_row();
  s.append(2);
  CHECK(!leans_at(s, 2));
  check_step(s, 2, 2);
}

TEST(items_show_their_rows_wherever_they_begin) {
  Scene s(20);
  std::vector<int64_t> keys;
  std::vector<uint64_t> last;
  Random random(seed());
  for (uint64_t i = 0; i < 60; ++i) {
    s.append(i);
    if (i < 9) continue;
    keys.push_back(s.create(10));
    last.push_back(i);
  }
  std::vector<int64_t> asked;
  std::vector<uint64_t> ends;
  for (int i = 0; i < 200; ++i) {
    const size_t k = random.below(keys.size());
    asked.push_back(keys[k]);
    ends.push_back(last[k]);
  }
  Batch batch(s.world.arena, 200);
  SampleCall call(s.world.arena);
  std::vector<uint32_t> found(asked.size());
  CHECK_EQ(call.get(s.world.table(), asked.data(), 200, kNow, batch, found.data()).done, asked.size());
  for (int64_t i = 0; i < 200; ++i) {
    for (uint32_t j = 0; j < 10; ++j) {
      CHECK(std::string(batch.cell(kColumn, i, j), kRowBytes) == row_of(ends[static_cast<size_t>(i)] - 9 + j));
    }
  }
}

// Bytes, sizes and references are changed. A reader notes the damage or shows something, and touches nothing else (the
// sanitizers check that).
TEST(damage_is_noted_and_shown_as_zeros) {
  Random random(seed());
  size_t noted = 0;
  for (int round = 0; round < 150; ++round) {
    Scene s;
    for (uint64_t i = 0; i < 20; ++i) s.append(i);
    const auto at = static_cast<uint32_t>(random.below(20));
    BlockRef ref = s.ref(at);
    char* bytes = s.world.arena.block_data(ref.first_block);
    if (round % 3 == 0) ref.num_bytes = static_cast<uint32_t>(random.below(2 * kRowBytes));
    if (round % 3 == 1) ref = kNoValue;
    if (round % 3 == 2) {
      for (int i = 0; i < 8; ++i)
        bytes[random.below(std::min(ref.num_bytes, 64u))] ^= static_cast<char>(1 + random.below(255));
    }
    std::memcpy(s.world.arena.row(0, kColumn, at), &ref, sizeof ref);
    PackedReader reader(kRowBytes);
    std::string row(kRowBytes, 'x');
    for (uint32_t r = at; r < 20; ++r) {
      try {
        reader.read(s.world.arena, 0, kColumn, r, row.data());
      } catch (const CorruptIndex&) {
        ++noted;  // a size that leads along blocks of another chunk
        continue;
      }
      if (reader.damage().is_there && reader.damage().row == r) CHECK(row == std::string(kRowBytes, 0));
    }
    noted += reader.damage().is_there ? 1 : 0;
  }
  CHECK(noted > 50);
}

}  // namespace shmreplay::test
