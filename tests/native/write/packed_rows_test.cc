#include "write/packed_rows.h"

#include "base/row_codec.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kRowBytes = 200, kColumn = 3;

ArenaSpec packed_arena() {
  ArenaSpec s = arena_of({open_table("a", 10)}, 8);
  s.columns.push_back({0, kHeapColumn, kRowBytes});
  s.num_blocks = 100;
  s.block_bytes = 64;
  return s;
}

// Noise; a few of its bytes are the row's own.
std::string noise(uint32_t row) {
  Random random(7);
  std::string bytes(kRowBytes, 0);
  for (char& c : bytes) c = static_cast<char>(random.word());
  bytes[row] = static_cast<char>(bytes[row] + 1);
  return bytes;
}

struct Written {
  uint32_t column, row;
  bool leans;
};

std::vector<Written> write_all(PackedRows& rows) {
  std::vector<Written> written;
  rows.write_all([&](uint32_t column, uint32_t row, const char* bytes, uint32_t num_bytes) {
    written.push_back({column, row, leans(bytes, num_bytes, kRowBytes)});
  });
  return written;
}

}  // namespace

TEST(packed_rows_are_written_once_in_their_order_and_take_the_blocks_they_said) {
  World w(packed_arena());
  PackedRows rows(w.arena);
  CHECK(rows.takes(kColumn) && !rows.takes(0));
  for (uint32_t i = 0; i < 3; ++i) rows.pack(kColumn, noise(i).data(), i);
  CHECK_EQ(rows.num_blocks(), 6u);  // noise by itself takes four blocks, a row that leans on it one
  const std::vector<Written> written = write_all(rows);
  CHECK_EQ(written.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i)
    CHECK(written[i].column == kColumn && written[i].row == i && written[i].leans == (i > 0));
  CHECK_EQ(rows.num_blocks(), 0u);
  CHECK(write_all(rows).empty());
}

TEST(a_row_after_one_that_was_dropped_is_packed_by_itself) {
  World w(packed_arena());
  PackedRows rows(w.arena);
  for (uint32_t i = 0; i < 3; ++i) rows.pack(kColumn, noise(i).data(), i);
  rows.keep_before(2);
  rows.pack(kColumn, noise(2).data(), 2);
  const std::vector<Written> written = write_all(rows);
  CHECK_EQ(written.size(), 3u);
  CHECK(written[1].leans && !written[2].leans);
  rows.pack(kColumn, noise(3).data(), 3);
  CHECK(write_all(rows).front().leans);
  rows.forget_all();  // another chunk
  rows.pack(kColumn, noise(4).data(), 4);
  CHECK(!write_all(rows).front().leans);
}

}  // namespace shmreplay::test
