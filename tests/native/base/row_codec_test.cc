// Rows as bytes: what an encoder makes, a decoder takes. For any other bytes, nothing is read or written out of bounds
// (the sanitizers check that).
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/row_codec.h"
#include "support/harness.h"

namespace shmreplay::test {
namespace {

using Bytes = std::vector<char>;

// Bytes with repetitions of all kinds: near and far, short and long.
Bytes some_bytes(Random& random, size_t n) {
  Bytes bytes;
  while (bytes.size() < n) {
    const size_t left = n - bytes.size(),
                 here = std::min<size_t>(left, 1 + random.below(random.chance(0.1) ? 3000 : 60));
    if (bytes.empty() || random.chance(0.3)) {
      for (size_t i = 0; i < here; ++i) bytes.push_back(static_cast<char>(random.word()));
    } else {
      const size_t most = std::min<size_t>(bytes.size(), random.chance(0.5) ? 40 : 100000);
      const size_t offset = 1 + random.below(most);
      for (size_t i = 0; i < here; ++i) bytes.push_back(bytes[bytes.size() - offset]);
    }
  }
  return bytes;
}

Bytes changed(Random& random, Bytes row, size_t pieces) {
  for (; pieces > 0 && !row.empty(); --pieces) {
    const size_t at = random.below(row.size()), n = std::min<size_t>(row.size() - at, 1 + random.below(40));
    for (size_t i = at; i < at + n; ++i) row[i] = static_cast<char>(random.word());
  }
  return row;
}

// Memory of exactly that size, so that a sanitizer sees one byte too much.
std::unique_ptr<char[]> exactly(const char* bytes, size_t n) {
  auto copy = std::make_unique<char[]>(n);
  if (n > 0) std::memcpy(copy.get(), bytes, n);
  return copy;
}

bool decode(const Bytes& stored, const Bytes& before, Bytes& row) {
  const auto from = exactly(stored.data(), stored.size());
  const auto to = exactly(before.data(), before.size());
  const bool good = decode_row(from.get(), stored.size(), to.get(), before.size());
  row.assign(to.get(), to.get() + before.size());
  return good;
}

}  // namespace

TEST(a_block_gives_back_the_bytes_it_was_made_of) {
  Random random(seed());
  Lz4Compressor lz4;
  for (int round = 0; round < 600; ++round) {
    const Bytes bytes =
        some_bytes(random, round < 100 ? static_cast<size_t>(round) : random.below(round % 20 == 0 ? 200000 : 9000));
    Bytes block(2 * bytes.size() + 16);
    const size_t size = lz4.compress(bytes.data(), bytes.size(), block.data(), block.size());
    CHECK(size > 0);
    const auto from = exactly(block.data(), size);
    const auto to = std::make_unique<char[]>(bytes.size());
    CHECK(lz4_decompress(from.get(), size, to.get(), bytes.size()));
    CHECK(bytes.empty() || std::memcmp(to.get(), bytes.data(), bytes.size()) == 0);
    // It decodes to exactly that many bytes, not to more or fewer.
    const auto more = std::make_unique<char[]>(bytes.size() + 1);
    CHECK(!lz4_decompress(from.get(), size, more.get(), bytes.size() + 1));
    if (!bytes.empty()) CHECK(!lz4_decompress(from.get(), size, to.get(), bytes.size() - 1));
    // Room that is just enough, and one byte less.
    const auto tight = std::make_unique<char[]>(size);
    const size_t again = lz4.compress(bytes.data(), bytes.size(), tight.get(), size);
    CHECK(again == 0 || (again == size && std::memcmp(tight.get(), block.data(), size) == 0));
    if (size > 1) CHECK_EQ(lz4.compress(bytes.data(), bytes.size(), tight.get(), size - 1), 0u);
  }
}

TEST(a_block_begins_with_a_literal) {
  Random random(seed());
  Lz4Compressor lz4;
  for (int round = 0; round < 200; ++round) {
    const Bytes bytes = some_bytes(random, 1 + random.below(500));
    Bytes block(1024);
    CHECK(lz4.compress(bytes.data(), bytes.size(), block.data(), block.size()) > 0);
    CHECK(static_cast<unsigned char>(block[0]) >= 16);
  }
}

TEST(rows_come_back_whether_they_lean_on_the_one_before_or_not) {
  Random random(seed());
  RowEncoder encoder;
  size_t leaning = 0, alone = 0, raw = 0;
  for (int round = 0; round < 600; ++round) {
    const size_t n = round < 40 ? static_cast<size_t>(round) : random.below(8000);
    const Bytes before = some_bytes(random, n);
    const Bytes row = round % 3 == 0 ? some_bytes(random, n) : changed(random, before, random.below(20));
    Bytes stored(3, 'x'), again;
    const bool it_leans = encoder.encode(row.data(), round % 7 == 0 ? nullptr : before.data(), n, stored);
    CHECK(std::string(stored.data(), 3) == "xxx");
    stored.erase(stored.begin(), stored.begin() + 3);
    CHECK(stored.size() <= n);
    CHECK_EQ(leans(stored.data(), stored.size(), n), it_leans);
    CHECK(!it_leans || round % 7 != 0);
    CHECK(decode(stored, it_leans ? before : Bytes(n, 'z'), again));
    CHECK(again == row);
    ++(it_leans ? leaning : stored.size() == n ? raw : alone);
  }
  CHECK(leaning > 100 && alone > 20 && raw > 20);
}

TEST(a_row_that_is_the_one_before_takes_a_byte) {
  RowEncoder encoder;
  const Bytes row(7056, 'a');
  Bytes stored;
  CHECK(encoder.encode(row.data(), row.data(), row.size(), stored));
  CHECK_EQ(stored.size(), 1u);
}

TEST(a_row_of_which_all_is_other_does_not_lean) {
  Random random(seed());
  RowEncoder encoder;
  Bytes before(5000), row(5000), stored;
  for (char& c : before) c = static_cast<char>(random.word());
  for (char& c : row) c = static_cast<char>(random.word());
  CHECK(!encoder.encode(row.data(), before.data(), row.size(), stored));
  CHECK_EQ(stored.size(), row.size());
}

// Bytes of a row with some changed, cut or added; and bytes that never were a row's.
TEST(whatever_bytes_are_decoded_nothing_is_touched_beside_the_row) {
  Random random(seed());
  RowEncoder encoder;
  Lz4Compressor lz4;
  size_t refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const size_t n = 1 + random.below(round % 10 == 0 ? 5000 : 200);
    const Bytes before = some_bytes(random, n);
    Bytes stored, again;
    if (round % 4 == 0) {
      stored.resize(random.below(n + 10));
      for (char& c : stored) c = random.chance(0.3) ? static_cast<char>(0xff) : static_cast<char>(random.word());
      if (!stored.empty() && round % 8 == 0) stored[0] = 0;
    } else {
      const Bytes row = round % 4 == 1 ? some_bytes(random, n) : changed(random, before, 1 + random.below(6));
      encoder.encode(row.data(), before.data(), n, stored);
      for (size_t flips = random.below(4); flips > 0 && !stored.empty(); --flips) {
        stored[random.below(stored.size())] ^= static_cast<char>(1 << random.below(8));
      }
      if (random.chance(0.3)) stored.resize(random.below(stored.size() + 1));
      if (random.chance(0.1)) stored.resize(stored.size() + random.below(20));
    }
    refused += decode(stored, before, again) ? 0 : 1;
  }
  CHECK(refused > 500);
}

}  // namespace shmreplay::test
